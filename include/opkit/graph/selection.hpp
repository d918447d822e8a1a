// Selection: the kernel and configuration of each node of a graph. Plan::selection() returns the
// choice of a plan. PlanOptions::selection.forced forces it on another plan, also in another
// process.
#ifndef OPKIT_GRAPH_SELECTION_HPP_
#define OPKIT_GRAPH_SELECTION_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kernels of a graph's nodes. A node without an entry gets its kernel by the usual rules.
//
//   Selection chosen = plan.selection();
//   SaveFile("model.selection", ToString(chosen));            // … and in another process
//   PlanOptions options;
//   options.selection.forced = ParseSelection(ReadFile("model.selection"));
//   Plan plan = Compile(graph, options);
struct Selection {
  // The quantity that selection minimizes, node by node. The order of the backends decides between
  // candidates that are equal in this quantity or do not estimate it.
  enum class Objective : uint8_t {
    kTime,  // the times that kernels estimate (KernelConfig::cost_ns), with conversions and copies
    kMemory,  // the bytes of a run: scratch, outputs that may not take an input's memory,
              // conversions
  };

  // The choice for one node.
  struct Node {
    // The node's first output that is not left out. If several nodes write that value, the second
    // node is "y#2". A node in a body has the names of the carrying node and of the body as a
    // prefix: "y/body/z".
    std::string node;
    std::string backend;  // "eigen"
    // Index among the configurations that the kernel proposes; -1: any. Where `layouts` is set, the
    // index only decides between several configurations with these layouts and this variant.
    int config = -1;
    std::string op = {};  // operator type; empty: any
    // One of PlanOptions::devices ("cuda:1"), for a node that names no device; empty: any.
    std::string device = {};
    // The layouts of the configuration, of its inputs and its outputs: "NHWC, standard -> NHWC", or
    // "standard" if all are; empty: any. Where they are set, inputs that come in other layouts are
    // converted, whatever the kernel proposes for the layouts in which they come.
    std::string layouts = {};
    std::string variant = {};  // KernelConfig::variant; empty: any
    // False: passed over where the graph has no such node or the node cannot have it. Not written
    // by ToString.
    bool required = true;
  };

  std::vector<Node> nodes;

  // Returns null for a node without an entry.
  const Node* Find(std::string_view node) const;
};

// Writes a line "node TAB op TAB backend TAB config TAB device TAB layouts TAB variant" for each
// node; without the last fields if they are empty. A backslash, a tab and an end of line in a field
// are written \\, \t and \n.
std::string ToString(const Selection& selection);
// Parses the text of ToString. Throws kInvalidArgument, with the line, for any other text.
Selection ParseSelection(std::string_view text);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/selection.ipp"
#endif

#endif  // OPKIT_GRAPH_SELECTION_HPP_
