// Selection: which kernel runs each node of a graph, in which of its configurations. A plan tells
// its own; forced on another plan, or on the same graph in another run, it makes that run the same.
#ifndef OPKIT_GRAPH_SELECTION_HPP_
#define OPKIT_GRAPH_SELECTION_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// What selection makes small, node by node. Between candidates that do not differ in it, or do not
// estimate it, the order of the backends decides.
enum class SelectionObjective : uint8_t {
  kTime,    // the times that kernels estimate (KernelConfig::cost_ns), with conversions and copies
  kMemory,  // the bytes of a run: scratch, outputs that may not take an input's memory, conversions
};

struct SelectedKernel {
  // The name of its first output that is not left out. Of nodes that write the same value the
  // second is "y#2"; a node in a body has the names of the node and of the body before it,
  // "y/body/z".
  std::string node;
  std::string backend;  // "eigen"
  int config = -1;      // among those that the kernel proposes for the node; -1: any of them
  std::string op = {};  // empty: any
  // "cuda:1", one of PlanOptions::devices, for a node that names none; empty: any.
  std::string device = {};
};

//   Selection chosen = plan.selection();
//   WriteFile("model.selection", ToString(chosen));            // … and in another process
//   Plan plan = Compile(graph, {.selection = ParseSelection(ReadFile("model.selection"))});
struct Selection {
  std::vector<SelectedKernel> nodes;

  // Null for a node that is left to the order of the backends.
  const SelectedKernel* Find(std::string_view node) const;
};

// A line "node TAB op TAB backend TAB config TAB device" for each; a backslash, a tab and an end of
// line in a name are written \\, \t and \n. ParseSelection takes lines without a device too.
std::string ToString(const Selection& selection);
// Error (kInvalidArgument) that names the line.
Selection ParseSelection(std::string_view text);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/selection.ipp"
#endif

#endif  // OPKIT_GRAPH_SELECTION_HPP_
