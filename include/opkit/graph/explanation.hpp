// Explanation: which implementation runs each node of a plan, and why: the candidates in the order
// of preference, what became of each, and the conversions between the layouts of neighbours.
//
//   std::puts(ToString(plan.Explain()).c_str());
#ifndef OPKIT_GRAPH_EXPLANATION_HPP_
#define OPKIT_GRAPH_EXPLANATION_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

struct Explanation {
  struct Candidate {
    std::string backend;
    std::string device = {};  // "cuda"; empty for the CPU
    std::string
        place;       // where its kernel was registered, FILE:LINE; empty for one that is not there
    int config = 0;  // among those that its kernel proposes
    std::string layouts;       // "NHWC, standard -> NHWC"; empty where all are the standard one
    double cost_ns = -1;       // as the kernel estimates it; negative: it does not
    double conversion_ns = 0;  // estimated, of the inputs that come in other layouts
    std::string why_not;       // empty for the one that was chosen
  };
  struct Node;
  // A graph that a node runs and that is planned with it.
  struct Body {
    std::string name;  // "then_branch"
    std::vector<Node> nodes;
  };
  struct Node {
    std::string name;  // its first output
    std::string text;  // "Conv 'c1' (X, W) -> (P)"
    // The nodes that the kernel of the first computes together, as the plan's graph has them; empty
    // where it computes its own alone. The candidates are those of the first.
    std::vector<std::string> parts = {};
    std::vector<Candidate> candidates;
    int chosen = -1;     // in `candidates`; -1 for a converter
    int runner_up = -1;  // that would run the node if the chosen one were not there; -1: none
    // Of a converter: the layouts or devices, the bytes that it reads and writes, an estimate of
    // its time where there is one.
    std::string from = {}, to = {};
    int64_t bytes = 0;
    double ns = 0;
    std::vector<Body> bodies = {};

    bool is_converter() const { return chosen < 0; }
  };
  std::vector<Node> nodes;  // in the order in which they run
  // Of a run: conversions between layouts, and copies between devices.
  int converters = 0;
  int64_t converted_bytes = 0;
  int copies = 0;
  int64_t copied_bytes = 0;
  // Constants that the plan has in another layout or on another device: Compile has made them, and
  // runs do not.
  int converted_constants = 0;
  // Nodes that run again since their values are not kept (MemoryPlanOptions::recompute).
  int recomputed_nodes = 0;
};

std::string ToString(const Explanation& explanation);
// {"nodes": [{"name", "text", "parts", "chosen", "candidates": [{"backend", …}]} or {"name",
// "from", "to", "bytes", "ns"}, …]}; a node that runs graphs has "bodies": [{"name", "nodes"}, …].
std::string ToJson(const Explanation& explanation);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/explanation.ipp"
#endif

#endif  // OPKIT_GRAPH_EXPLANATION_HPP_
