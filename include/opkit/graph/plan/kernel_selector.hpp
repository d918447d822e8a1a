// KernelSelector: the step of a plan that fixes a kernel and one of its configurations for each
// node, before converters are inserted and memory is planned. Node by node in the order in which
// they run: what a kernel costs includes the conversions from the layouts that its inputs have by
// then.
#ifndef OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
#define OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_

#include <map>
#include <optional>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The candidates of a node in the order of preference, those that cannot be chosen among them, with
// the reason.
struct NodeRating {
  struct Rated {
    KernelCandidate candidate;
    double conversion_ns = 0;  // an estimate, of its inputs
  };
  std::vector<Rated> candidates;
  int best = -1;  // -1: none can be chosen

  // Why a candidate is not the best one.
  std::string WhyNot(int i) const;
};

class KernelSelector {
 public:
  struct Options {
    bool strict_backends = false;
    const Selection* forced = nullptr;
  };

  // `types` has what inference knows, and gets the layouts of the values that nodes make.
  KernelSelector(const GraphView& view, GraphTypes& types, const Options& options);

  // Chooses for every node. Errors: as KernelCandidates; kUnsupported with each candidate's reason
  // where none takes a node; kNotFound and kUnsupported for a forced choice that cannot be made.
  void SelectAll(std::vector<NodeChoice>& choices);
  // The constructor of the node's kernel has refused it: chooses again without that kernel. False
  // where other layouts come of it, so that all nodes must be chosen again.
  bool SelectAfterRefusal(int node, const std::string& why, NodeChoice& choice);

  // With the layouts that the node's inputs have now.
  NodeRating Rate(int node) const;

 private:
  void Select(int node, NodeChoice& choice);
  // The node with the backends that it must have; null where the graph's own will do.
  std::optional<OperatorDef> Restricted(const OperatorDef& def) const;
  std::string WhyNot(int node, const KernelCandidate& candidate) const;
  double ConversionCost(int node, const KernelConfig& config) const;
  void CheckForced() const;

  const GraphView& view_;
  GraphTypes& types_;
  const Options options_;
  struct Refusal {
    const Kernel* kernel;
    int config;
    std::string why;
  };
  std::map<int, std::vector<Refusal>> refused_;  // by node
};

// The name by which selections know a node.
const std::string& SelectionName(const OperatorDef& def);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/kernel_selector.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
