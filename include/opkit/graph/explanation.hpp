// Explanation: the kernel that runs each node of a plan, and why. Lists the candidates in order of
// preference, the reason against each, and the conversions between layouts.
//
//   std::puts(ToString(plan.Explain()).c_str());
#ifndef OPKIT_GRAPH_EXPLANATION_HPP_
#define OPKIT_GRAPH_EXPLANATION_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct Explanation {
  // A backend, device and configuration that was considered for a node.
  struct Candidate {
    std::string backend;
    std::string device = {};  // "cuda"; empty for the CPU
    std::string place;        // FILE:LINE of the kernel's registration; empty if there is no kernel
    int config = 0;           // index among the configurations that the kernel proposes
    std::string variant = {};  // name of the configuration's variant, "winograd"; may be empty
    std::string layouts;       // "NHWC, standard -> NHWC"; empty if all are the standard layout
    double cost_ns = -1;       // the kernel's estimate; negative: none
    double conversion_ns = 0;  // estimated time to convert the inputs that have other layouts
    std::string why_not;       // the reason against it; empty for the chosen candidate
  };
  // A kernel's time in the tuning cache, alone, without the conversions before it.
  struct Measured {
    std::string way;                                // "eigen 3.4.0 on cpu, standard"
    double median_ns = 0, low_ns = 0, high_ns = 0;  // with the 95 % confidence interval
    bool is_chosen = false;
  };
  struct Node;
  // A graph that a node runs and that is planned together with the node's graph.
  struct Body {
    std::string name;  // "then_branch"
    std::vector<Node> nodes;
  };
  struct Node {
    std::string name;  // name of the node's first output
    std::string text;  // "Conv 'c1' (X, W) -> (P)"
    // Texts of several nodes of Plan::graph() that one kernel computes together; empty if the
    // kernel computes one node. `candidates` are the candidates of the first node.
    std::vector<std::string> parts = {};
    std::vector<Candidate> candidates;
    int chosen = -1;     // index in `candidates`; -1 for a converter
    int runner_up = -1;  // index of the candidate that would run the node instead; -1: none
    // For a converter only: the two layouts or devices, the bytes that it reads and writes, and an
    // estimate of its time.
    std::string from = {}, to = {};
    int64_t bytes = 0;
    double ns = 0;
    std::vector<Body> bodies = {};
    // With PlanOptions::tuning: what the cache has of the node, or of the first of several nodes,
    // the fastest first. The chosen way is not the first where conversions cost more than it saves,
    // or where the difference is noise.
    std::vector<Measured> measured = {};

    bool is_converter() const { return chosen < 0; }
  };
  std::vector<Node> nodes;  // in the order in which they run
  // Number of conversions between layouts and copies between devices in a run, bodies included.
  int converters = 0;
  int64_t converted_bytes = 0;
  int copies = 0;
  int64_t copied_bytes = 0;
  // Number of constants that were converted to another layout, or copied to another device, during
  // the selection of kernels. Runs do not repeat these conversions.
  int converted_constants = 0;
  // Nodes that run again because their values are not kept (PlanOptions::memory.recompute).
  int recomputed_nodes = 0;
};

std::string ToString(const Explanation& explanation);
// Writes JSON with the names of the members above: {"nodes": [{"name", "text", "parts", "chosen",
// "runner_up", "candidates": [{"backend", …}], "measured": [{"way", …}]} or, for a converter,
// {"name", "text", "from", "to", "bytes", "ns"}, …], "converters", …}. A node that runs graphs has
// "bodies": [{"name", "nodes"}, …].
std::string ToJson(const Explanation& explanation);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/explanation.ipp"
#endif

#endif  // OPKIT_GRAPH_EXPLANATION_HPP_
