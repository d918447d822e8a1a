// TunedGraph: the configurations among which tuning chooses for each node of a graph or of a body,
// and the assignment problem that the measured times make of them.
#ifndef OPKIT_GRAPH_TUNE_TUNED_GRAPH_HPP_
#define OPKIT_GRAPH_TUNE_TUNED_GRAPH_HPP_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "opkit/graph/plan/specialization.hpp"
#include "opkit/graph/tune/assignment.hpp"
#include "opkit/graph/tune/cost_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The choices of one graph. Tuning makes an object for the graph of a plan and for each body.
class OPKIT_IMAGE_LOCAL TunedGraph {
 public:
  // A configuration of a node.
  struct Choice {
    NodeRating::Rated rated;
    std::string way;  // WayKey
    std::string key;  // WorkKey and WayKey: where its time stands in a CostTable
  };
  // A node as the solver sees it: alone, or computed by the kernel of the node that makes one of
  // its inputs.
  struct State {
    size_t choice;
    int absorbed_by = -1;  // index of that input; -1: alone
  };
  struct Solution {
    IndexedVector<State> states;  // by node
    double cost_ns = 0, lower_bound_ns = 0;
    // The nodes that are computed by the kernel of an earlier node, each with its PairKey.
    std::vector<std::pair<int, std::string>> pairs;
    int guesses = 0;  // configurations and pairs in it that were not measured
  };

  // `plan` is the default plan's specialization of the graph. `prefix` stands before the names of
  // its nodes in selections.
  TunedGraph(const Specialization& plan, std::string prefix,
             const KernelSelector::Options& options);

  const Specialization& plan() const { return plan_; }
  const std::string& prefix() const { return prefix_; }
  const std::vector<Choice>& choices(int node) const { return choices_[node]; }
  // Returns the index of the default plan's choice.
  size_t default_choice(int node) const { return default_[node]; }
  const std::string& work(int node) const { return work_[node]; }
  const std::string& name(int node) const { return names_[node]; }

  // Returns the best assignment by the measured times. A configuration without a measured time
  // counts with a guess that favours it, so that it is tried if it could matter.
  // `ns_per_byte` is what a byte of a node's outputs, scratch or converted constants counts.
  Solution Solve(const CostTable& table, double ns_per_byte = 0) const;
  // Calls `visit` with the key of each configuration and of each pair that Solve may look up; the
  // second argument is true for a pair.
  void ForEachKey(FunctionRef<void(const std::string& key, bool is_pair)> visit) const;
  // Appends the entries of a solution to a selection.
  void AppendTo(const Solution& solution, Selection& selection) const;

  // Returns the text of a node that a kernel of an earlier node computes: its work and layouts.
  static std::string PartKey(const std::string& work, const KernelConfig& config) {
    return StrCat(work, " in ", SelectionLayouts(config));
  }
  // Returns the text of a kernel's node and the next node that it computes too. `left` is the key
  // of a Choice, or the PartKey of a node that is itself computed by an earlier kernel.
  static std::string PairKey(const std::string& left, const std::string& right) {
    return StrCat(left, ", then ", right);
  }

 private:
  class Builder;
  // Returns the only reader of the node's only output if a kernel may compute both; else -1.
  int NextOf(int node) const;
  void FindChoices(const KernelSelector::Options& options);
  // Returns the floating-point operations of a node; 0 if its schema has no cost.
  uint64_t FlopsOf(int node) const;

  const Specialization& plan_;
  const GraphView& view_;
  const std::string prefix_;
  GraphTypes types_;  // all in the standard layout
  std::unique_ptr<KernelSelector> selector_;
  IndexedVector<std::vector<Choice>> choices_;  // by node
  IndexedVector<size_t> default_;
  IndexedVector<std::string> work_, names_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/tuned_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_TUNED_GRAPH_HPP_
