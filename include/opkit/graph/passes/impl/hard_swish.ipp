// MergeHardSwish's definition: at every Mul(x, gate), checks whether `gate` is HardSigmoid(x), or
// Clip(x + 3, 0, 6) with a division by 6 behind the Mul.
#ifndef OPKIT_GRAPH_PASSES_IMPL_HARD_SWISH_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_HARD_SWISH_IPP_

#include <cmath>
#include <optional>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/hard_swish.hpp"
#include "opkit/graph/passes/node_pass.hpp"
#include "opkit/graph/passes/standard_passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// One run of the pass: the constructor finds the patterns, Result builds the graph.
class HardSwishMerger : NodePass {
 public:
  explicit HardSwishMerger(const Graph& graph) : NodePass(graph), nodes_(graph.nodes()) {
    for (int node = 0; node < graph.num_nodes(); ++node)
      if (Is(node, "Mul")) Look(node);
  }

  Graph Result() const {
    if (!has_merged_) return graph_;
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node)
      if (!removed_[node]) nodes.push_back(nodes_[node]);
    return WithNodes(std::move(nodes), graph_.constants());
  }

 private:
  static constexpr float kSixth = 1 / 6.f;

  static bool IsNear(float a, float b) { return std::fabs(a - b) <= 1e-6f * std::fabs(b); }
  // True if the value is a float32 constant with one element that is near this number.
  bool IsNumber(int value, float number) const {
    const Tensor* tensor = value < 0 ? nullptr : view_.constant(value);
    return tensor && tensor->dtype() == DType::kFloat32 && tensor->numel() == 1 &&
           tensor->rank() <= 1 && IsHostAccessible(tensor->device().type) &&
           IsNear(*tensor->data<float>(), number);
  }
  // True if a product or sum of x and these constants of one element has x's shape. A scalar x and
  // a constant of shape [1] would give shape [1].
  bool KeepShape(int x, std::initializer_list<int> numbers) {
    for (const int number : numbers) {
      if (view_.constant(number)->rank() == 0) continue;
      const GraphTypes* const types = Types();
      if (!types || !(*types)[x].shape.has_rank() || (*types)[x].shape.rank() == 0) return false;
    }
    return true;
  }
  // Returns the node that makes the value, if it is of this operator and the value has only one
  // reader; else -1.
  int MakerOf(int value, std::string_view op) const {
    const int node = value < 0 || OnlyReader(value) < 0 ? -1 : view_.producer(value);
    return node >= 0 && Is(node, op) ? node : -1;
  }
  // Merges the pattern around a Mul, if there is one.
  void Look(int product) {
    for (size_t i = 0; i < 2; ++i) {
      const int x = Input(product, i), gate = Input(product, 1 - i);
      if (x < 0 || x == gate) continue;
      if (const int sigmoid = MakerOf(gate, "HardSigmoid"); sigmoid >= 0) {
        const Arguments& args = graph_.node(sigmoid).args();
        if (Input(sigmoid, 0) == x && IsNear(args.Get<float>("alpha", 0.2f), kSixth) &&
            args.Get<float>("beta", 0.5f) == 0.5f && AreTogether({product, sigmoid}))
          return Merge(x, product, {sigmoid, product});
        continue;
      }
      const int clip = MakerOf(gate, "Clip");
      if (clip < 0 || !IsNumber(Input(clip, 1), 0) || !IsNumber(Input(clip, 2), 6)) continue;
      const int sum = MakerOf(Input(clip, 0), "Add");
      if (sum < 0) continue;
      const int three = Input(sum, Input(sum, 0) == x ? 1 : 0);
      const bool adds = (Input(sum, 0) == x || Input(sum, 1) == x) && IsNumber(three, 3);
      const int last = adds ? SixthOf(product) : -1;
      if (last < 0) continue;
      const int sixth = Input(last, Input(last, 0) == view_.outputs(product)[0] ? 1 : 0);
      if (AreTogether({sum, clip, product, last}) && KeepShape(x, {three, sixth}))
        return Merge(x, last, {sum, clip, product, last});
    }
  }
  // Returns the only reader of the product, if it divides the product by 6; else -1.
  int SixthOf(int product) const {
    const int value = view_.outputs(product)[0];
    const int node = OnlyReader(value);
    if (node < 0) return -1;
    if (Is(node, "Div")) return Input(node, 0) == value && IsNumber(Input(node, 1), 6) ? node : -1;
    if (!Is(node, "Mul")) return -1;
    const size_t other = Input(node, 0) == value ? 1 : 0;
    return IsNumber(Input(node, other), kSixth) ? node : -1;
  }
  // Replaces node `last` by a HardSwish of x and removes the other nodes.
  void Merge(int x, int last, std::initializer_list<int> nodes) {
    for (const int node : nodes) removed_[node] = node != last;
    const OperatorDef& from = graph_.node(last);
    nodes_[last] =
        OperatorDef("HardSwish", {view_.name(x)}, from.outputs())
            .Name(from.name())
            .Device(from.device())
            .Backends(from.backends(), from.requires_backends() ? kRequired : kPreferred);
    has_merged_ = true;
  }

  IndexedVector<OperatorDef> nodes_;
  bool has_merged_ = false;
};

}  // namespace detail

OPKIT_INLINE Graph MergeHardSwish(const Graph& graph) {
  return detail::HardSwishMerger(graph).Result();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline const bool kFillsMergeHardSwish = g_merge_hard_swish.Fill(&MergeHardSwish);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_HARD_SWISH_IPP_
