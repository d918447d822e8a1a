// MergeCommonSubexpressions: of nodes that compute the same of the same values, one is enough.
#ifndef OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_
#define OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_

#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Numbers that were added under a hash, newest first.
template <class Int>
class HashChains {
 public:
  explicit HashChains(size_t most) : next_(most, -1) {
    size_t size = 16;
    while (size < most) size *= 2;
    first_.assign(size, -1);
  }
  void Add(size_t hash, Int number) {
    Int& first = first_[hash & (first_.size() - 1)];
    next_[static_cast<size_t>(number)] = std::exchange(first, number);
  }
  // The first for which match(number) holds; -1 when none does.
  template <class F>
  Int Find(size_t hash, F&& match) const {
    Int at = first_[hash & (first_.size() - 1)];
    while (at >= 0 && !match(at)) at = next_[static_cast<size_t>(at)];
    return at;
  }

 private:
  std::vector<Int> first_, next_;
};

// Walks the nodes in the order they run, so that what a node reads has been merged before it is
// compared itself.
template <class G>
class SubexpressionMerger {
 public:
  explicit SubexpressionMerger(const G& graph)
      : graph_(graph),
        view_(graph),
        rewritten_(RewrittenValues(view_)),
        control_(ControlNames(graph)),
        removed_(static_cast<size_t>(graph.num_nodes()), 0) {
    for (int value = 0; value < view_.num_values(); ++value) {
      same_.push_back(value);
      called_.push_back(value);
    }
    MergeConstants();
    HashChains<int> known(static_cast<size_t>(graph.num_nodes()));
    for (const int node : view_.order()) {
      if (!IsPure(node)) continue;
      const size_t hash = Hash(node);
      const int first = known.Find(hash, [&](int other) { return IsSame(other, node); });
      if (first >= 0) {
        Merge(first, node);
      } else {
        known.Add(hash, node);
      }
    }
  }

  G Result() const {
    std::vector<typename G::Def> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[static_cast<size_t>(node)]) continue;
      auto& def = nodes.emplace_back(graph_.node(node));
      const auto ins = view_.inputs(node), outs = view_.outputs(node);
      for (size_t i = 0; i < ins.size(); ++i)
        if (ins[i] >= 0) def.mutable_inputs()[i] = Name(Same(ins[i]));
      for (size_t o = 0; o < outs.size(); ++o)
        if (outs[o] >= 0) def.mutable_outputs()[o] = Name(outs[o]);
    }
    std::vector<typename G::Constant> constants;
    for (const auto& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (Same(value) == value || view_.IsOutput(value)) constants.push_back(constant);
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  int Same(int value) const { return same_[static_cast<size_t>(value)]; }
  const std::string& Name(int value) const {
    return view_.name(called_[static_cast<size_t>(value)]);
  }

  void MergeConstants() {
    HashChains<int> known(static_cast<size_t>(view_.num_values()));
    for (int value = 0; value < view_.num_values(); ++value) {
      const Tensor* tensor = view_.constant(value);
      if (!tensor) continue;
      const size_t hash = std::hash<std::string_view>()(FirstBytes(*tensor));
      const int first = known.Find(
          hash, [&](int other) { return Attribute(*view_.constant(other)) == Attribute(*tensor); });
      if (first >= 0) {
        same_[static_cast<size_t>(value)] = first;
      } else {
        known.Add(hash, value);
      }
    }
  }
  static std::string FirstBytes(const Tensor& tensor) {
    std::string out = tensor.Describe();
    const bool plain = tensor.is_dense() && tensor.layout().is_standard() && tensor.raw_data();
    if (!plain || !IsHostAccessible(tensor.device().type)) return out;
    const int64_t bytes = tensor.nbytes() < 256 ? tensor.nbytes() : 256;
    return out.append(static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(bytes));
  }

  // A value that is rewritten is another one before and after.
  bool IsPure(int node) const {
    const auto& def = graph_.node(node);
    const bool waited_for = !def.name().empty() && control_.Find(def.name()) >= 0;
    if (waited_for || HasEffect(def) || RewritesInputs(def)) return false;
    for (const auto values : {view_.inputs(node), view_.outputs(node)})
      for (const int value : values)
        if (value >= 0 && rewritten_[static_cast<size_t>(value)]) return false;
    return true;
  }
  size_t Hash(int node) const {
    const auto& def = graph_.node(node);
    size_t hash = std::hash<std::string_view>()(def.type()) + def.args().size();
    for (const int value : view_.inputs(node))
      hash = hash * 1000003 + static_cast<size_t>(value < 0 ? -1 : Same(value));
    for (size_t i = 0; i < def.args().size(); ++i)  // in any order
      hash += std::hash<std::string_view>()((def.args().begin() + static_cast<int>(i))->name);
    return hash ^ (hash >> 29);
  }
  bool IsSame(int a, int b) const {
    const auto ins_a = view_.inputs(a), ins_b = view_.inputs(b);
    const auto outs_a = view_.outputs(a), outs_b = view_.outputs(b);
    if (ins_a.size() != ins_b.size() || outs_a.size() != outs_b.size()) return false;
    for (size_t i = 0; i < ins_a.size(); ++i)
      if ((ins_a[i] < 0) != (ins_b[i] < 0) || (ins_a[i] >= 0 && Same(ins_a[i]) != Same(ins_b[i])))
        return false;
    for (size_t o = 0; o < outs_a.size(); ++o)
      if ((outs_a[o] < 0) != (outs_b[o] < 0)) return false;
    return SameOperation(graph_.node(a), graph_.node(b));
  }
  // Outputs of the graph keep their names: the first node takes that of its double, unless it has
  // such a name itself; then both stay, and only the first one is read.
  void Merge(int first, int node) {
    const auto kept = view_.outputs(first), gone = view_.outputs(node);
    bool names_clash = false;
    for (size_t o = 0; o < gone.size(); ++o)
      names_clash |= gone[o] >= 0 && view_.IsOutput(gone[o]) &&
                     view_.IsOutput(called_[static_cast<size_t>(kept[o])]);
    removed_[static_cast<size_t>(node)] = !names_clash;
    for (size_t o = 0; o < gone.size(); ++o) {
      if (gone[o] < 0) continue;
      same_[static_cast<size_t>(gone[o])] = kept[o];
      if (!names_clash && view_.IsOutput(gone[o])) called_[static_cast<size_t>(kept[o])] = gone[o];
    }
  }

  const G& graph_;
  const BasicGraphView<G> view_;
  const std::vector<char> rewritten_;  // by value
  const NameIndex control_;
  std::vector<char> removed_;
  std::vector<int> same_;    // by value: the one that is read in its place
  std::vector<int> called_;  // by value: the one whose name it gets
};

}  // namespace detail

// Nodes are the same by operator, inputs, attributes to the bit, subgraphs, device, engine and
// control inputs; constants by dtype, shape, device and bytes. What stays double: nodes with an
// effect (stateful operators, no outputs), those that read, write or make a value that is
// rewritten, and those that others wait for by name.
template <class G = Graph>
G MergeCommonSubexpressions(const G& graph) {
  return detail::SubexpressionMerger<G>(graph).Result();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_
