// MergeCommonSubexpressions' definition: visits the nodes in the order of a run, so that a node's
// inputs are merged before the node itself is compared.
#ifndef OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/passes/node_pass.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// One run of the pass: the constructor finds equal nodes and constants, Result builds the graph.
class SubexpressionMerger : NodePass {
 public:
  explicit SubexpressionMerger(const Graph& graph) : NodePass(graph) {
    for (int value = 0; value < view_.num_values(); ++value) same_.push_back(value);
    called_ = same_;
    MergeConstants();
    Candidates known;
    for (const int node : view_.order()) {
      if (IsWaitedFor(graph.node(node), control_) || !IsRepeatable(view_, node)) continue;
      const int first =
          FindOrAdd(known[Key(node)], node, [&](int other) { return IsSame(other, node); });
      if (first != node) Merge(first, node);
    }
  }

  Graph Result() const {
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[node]) continue;
      OperatorDef& def = nodes.emplace_back(graph_.node(node));
      const auto ins = view_.inputs(node), outs = view_.outputs(node);
      for (size_t i = 0; i < ins.size(); ++i)
        if (ins[i] >= 0 && def.inputs()[i] != Name(Same(ins[i])))
          def.mutable_inputs()[i] = Name(Same(ins[i]));
      for (size_t o = 0; o < outs.size(); ++o)
        if (outs[o] >= 0 && def.outputs()[o] != Name(outs[o]))
          def.mutable_outputs()[o] = Name(outs[o]);
    }
    std::vector<Graph::Constant> constants;
    for (const Graph::Constant& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (Same(value) == value || view_.IsOutput(value)) constants.push_back(constant);
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  // Nodes or constants, grouped by a key. Only members of one group can be equal.
  using Candidates = NameTable<std::vector<int>>;

  // Returns the member of the group for which same(member) is true. If there is none, adds `number`
  // and returns it.
  template <class F>
  static int FindOrAdd(std::vector<int>& group, int number, F&& same) {
    for (const int member : group)
      if (same(member)) return member;
    group.push_back(number);
    return number;
  }

  int Same(int value) const { return same_[value]; }
  const std::string& Name(int value) const { return view_.name(called_[value]); }

  void MergeConstants() {
    Candidates known;
    for (int value = 0; value < view_.num_values(); ++value) {
      const Tensor* tensor = view_.constant(value);
      if (!tensor) continue;
      const auto same = [&](int other) {
        return Attribute(*view_.constant(other)) == Attribute(*tensor);
      };
      same_[value] = FindOrAdd(known[FirstBytes(*tensor)], value, same);
    }
  }
  // Returns the group key of a constant: its type and up to 256 bytes of its data.
  static std::string FirstBytes(const Tensor& tensor) {
    std::string out = ToString(tensor);
    const bool plain = tensor.is_dense() && tensor.layout().is_standard() && tensor.raw_data();
    if (!plain || IsObject(tensor.dtype()) || !IsHostAccessible(tensor.device().type)) return out;
    return out.append(static_cast<const char*>(tensor.raw_data()),
                      Index((std::min)(tensor.nbytes(), int64_t{256})));
  }

  std::string Key(int node) const {
    std::string key = graph_.node(node).type();
    for (const int value : view_.inputs(node))
      key += std::to_string(value < 0 ? -1 : Same(value)) + ',';
    return key;
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
  // Merges `node` into `first`. Outputs of the graph keep their names: `first` takes such names of
  // `node`. If an output of `first` has such a name itself, both nodes stay, but other nodes read
  // only `first`.
  void Merge(int first, int node) {
    const auto kept = view_.outputs(first), gone = view_.outputs(node);
    bool names_clash = false;
    for (size_t o = 0; o < gone.size(); ++o)
      names_clash |= gone[o] >= 0 && view_.IsOutput(gone[o]) && view_.IsOutput(called_[kept[o]]);
    removed_[node] = !names_clash;
    for (size_t o = 0; o < gone.size(); ++o) {
      if (gone[o] < 0) continue;
      same_[gone[o]] = kept[o];
      if (!names_clash && view_.IsOutput(gone[o])) called_[kept[o]] = gone[o];
    }
  }

  IndexedVector<int> same_;    // by value: the value that is read instead
  IndexedVector<int> called_;  // by value: the value whose name it gets in the new graph
};

}  // namespace detail

OPKIT_INLINE Graph MergeCommonSubexpressions(const Graph& graph) {
  return detail::SubexpressionMerger(graph).Result();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_COMMON_SUBEXPRESSIONS_IPP_
