// MergeCommonSubexpressions' definition: walks the nodes in the order they run, so that a node's
// inputs are merged before the node itself is compared.
#ifndef OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_

#include <algorithm>
#include <unordered_map>

#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class SubexpressionMerger {
 public:
  explicit SubexpressionMerger(const Graph& graph)
      : graph_(graph),
        view_(graph),
        control_(ControlNames(graph)),
        removed_(Index(graph.num_nodes()), 0) {
    for (int value = 0; value < view_.num_values(); ++value) same_.push_back(value);
    called_ = same_;
    MergeConstants();
    HashIndex known;
    for (const int node : view_.order()) {
      if (!IsPure(node)) continue;
      const int first =
          FindOrAdd(known, Hash(node), node, [&](int other) { return IsSame(other, node); });
      if (first != node) Merge(first, node);
    }
  }

  Graph Result() const {
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[Index(node)]) continue;
      OperatorDef& def = nodes.emplace_back(graph_.node(node));
      const auto ins = view_.inputs(node), outs = view_.outputs(node);
      for (size_t i = 0; i < ins.size(); ++i)
        if (ins[i] >= 0) def.mutable_inputs()[i] = Name(Same(ins[i]));
      for (size_t o = 0; o < outs.size(); ++o)
        if (outs[o] >= 0) def.mutable_outputs()[o] = Name(outs[o]);
    }
    std::vector<GraphConstant> constants;
    for (const GraphConstant& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (Same(value) == value || view_.IsOutput(value)) constants.push_back(constant);
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  using HashIndex = std::unordered_multimap<size_t, int>;

  // The number that was added under the hash and for which same(number) holds; else adds `number`.
  template <class F>
  static int FindOrAdd(HashIndex& known, size_t hash, int number, F&& same) {
    const auto [first, last] = known.equal_range(hash);
    const auto found = std::find_if(first, last, [&](auto& entry) { return same(entry.second); });
    return found != last ? found->second : known.emplace(hash, number)->second;
  }
  int Same(int value) const { return same_[Index(value)]; }
  const std::string& Name(int value) const { return view_.name(called_[Index(value)]); }

  void MergeConstants() {
    HashIndex known;
    for (int value = 0; value < view_.num_values(); ++value) {
      const Tensor* tensor = view_.constant(value);
      if (!tensor) continue;
      const auto same = [&](int other) {
        return Attribute(*view_.constant(other)) == Attribute(*tensor);
      };
      same_[Index(value)] =
          FindOrAdd(known, std::hash<std::string_view>()(FirstBytes(*tensor)), value, same);
    }
  }
  static std::string FirstBytes(const Tensor& tensor) {
    std::string out = tensor.Describe();
    const bool plain = tensor.is_dense() && tensor.layout().is_standard() && tensor.raw_data();
    if (!plain || !IsHostAccessible(tensor.device().type)) return out;
    return out.append(static_cast<const char*>(tensor.raw_data()),
                      Index((std::min)(tensor.nbytes(), int64_t{256})));
  }

  // A rewritten value differs before and after, so one node cannot stand for both.
  bool IsPure(int node) const {
    const OperatorDef& def = graph_.node(node);
    if (IsWaitedFor(def, control_) || HasEffect(def) || RewritesInputs(def)) return false;
    for (const auto values : {view_.inputs(node), view_.outputs(node)})
      for (const int value : values)
        if (value >= 0 && view_.IsRewritten(value)) return false;
    return true;
  }
  size_t Hash(int node) const {
    const OperatorDef& def = graph_.node(node);
    size_t hash = std::hash<std::string_view>()(def.type()) + def.args().size();
    for (const int value : view_.inputs(node))
      hash = hash * 1000003 + Index(value < 0 ? -1 : Same(value));
    for (const NamedAttribute& arg : def.args())  // in any order
      hash += std::hash<std::string_view>()(arg.name);
    return hash ^ (hash >> 29);
  }
  bool IsSame(int a, int b) const {
    const auto ins_a = view_.inputs(a), ins_b = view_.inputs(b);
    const auto outs_a = view_.outputs(a), outs_b = view_.outputs(b);
    const auto same_input = [&](int x, int y) {
      return (x < 0) == (y < 0) && (x < 0 || Same(x) == Same(y));
    };
    const auto same_output = [](int x, int y) { return (x < 0) == (y < 0); };
    return std::equal(ins_a.begin(), ins_a.end(), ins_b.begin(), ins_b.end(), same_input) &&
           std::equal(outs_a.begin(), outs_a.end(), outs_b.begin(), outs_b.end(), same_output) &&
           SameOperation(graph_.node(a), graph_.node(b));
  }
  // Outputs of the graph keep their names: the node that stays takes the output names of the node
  // that goes. If it has such a name itself, both nodes stay, and only the first one is read.
  void Merge(int first, int node) {
    const auto kept = view_.outputs(first), gone = view_.outputs(node);
    bool names_clash = false;
    for (size_t o = 0; o < gone.size(); ++o)
      names_clash |=
          gone[o] >= 0 && view_.IsOutput(gone[o]) && view_.IsOutput(called_[Index(kept[o])]);
    removed_[Index(node)] = !names_clash;
    for (size_t o = 0; o < gone.size(); ++o) {
      if (gone[o] < 0) continue;
      same_[Index(gone[o])] = kept[o];
      if (!names_clash && view_.IsOutput(gone[o])) called_[Index(kept[o])] = gone[o];
    }
  }

  const Graph& graph_;
  const GraphView view_;
  const NameIndex control_;
  std::vector<char> removed_;
  std::vector<int> same_;    // by value: the one that is read in its place
  std::vector<int> called_;  // by value: the one whose name it gets
};

}  // namespace detail

OPKIT_INLINE Graph MergeCommonSubexpressions(const Graph& graph) {
  return detail::SubexpressionMerger(graph).Result();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_
