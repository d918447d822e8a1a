// FoldBatchNormalization's definition: visits the nodes in the order of a run, and combines for
// each convolution the factors and addends of the nodes behind it, channel by channel.
#ifndef OPKIT_GRAPH_PASSES_IMPL_BATCH_NORMALIZATION_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_BATCH_NORMALIZATION_IPP_

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/batch_normalization.hpp"
#include "opkit/graph/passes/node_pass.hpp"
#include "opkit/graph/passes/standard_passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y = x * factor + addend, by channel.
struct ChannelScaling {
  std::vector<double> factors, addends;

  explicit ChannelScaling(size_t channels) : factors(channels, 1), addends(channels, 0) {}
  // Applies another scaling after this one.
  void Then(const ChannelScaling& next) {
    for (size_t c = 0; c < factors.size(); ++c) {
      factors[c] *= next.factors[c];
      addends[c] = addends[c] * next.factors[c] + next.addends[c];
    }
  }
  bool IsFinite() const {
    for (size_t c = 0; c < factors.size(); ++c)
      if (!std::isfinite(factors[c]) || !std::isfinite(addends[c])) return false;
    return true;
  }
};

// One run of the pass: the constructor finds the nodes to fold, Result builds the graph.
class BatchNormalizationFolder : NodePass {
 public:
  explicit BatchNormalizationFolder(const Graph& graph) : NodePass(graph) {
    for (const int node : view_.order()) {
      if (std::optional<ChannelScaling> found = IsTied(node) ? std::nullopt : Scaling(node)) {
        Base& base = bases_.at(base_of_[found_input_]);
        base.scaling = *found;
        base.output = view_.outputs(node)[0];
        removed_[node] = 1;
        base_of_[base.output] = base.node;
        has_folded_ = true;
      } else if (const size_t channels = ScalableChannels(node); channels > 0) {
        const int output = view_.outputs(node)[0];
        bases_.emplace(node, Base{node, output, ChannelScaling(channels)});
        base_of_[output] = node;
      }
    }
  }

  Graph Result() const {
    if (!has_folded_) return graph_;
    std::vector<Graph::Constant> constants = graph_.constants();
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[node]) continue;
      OperatorDef& def = nodes.emplace_back(graph_.node(node));
      const auto base = bases_.find(node);
      if (base != bases_.end() && base->second.output != view_.outputs(node)[0])
        Scale(base->second, def, constants);
    }
    return WithNodes(std::move(nodes), std::move(constants));
  }

 private:
  // A Conv or BatchNormalization with the scaling to fold into it.
  struct Base {
    int node;
    int output;  // the output of the last node that was folded into the base
    ChannelScaling scaling;
  };

  // True if the node has control edges, a rewritten output, or not exactly one output.
  bool IsTied(int node) const {
    if (HasControlEdges(node)) return true;
    const auto outputs = view_.outputs(node);
    for (size_t o = 0; o < outputs.size(); ++o)
      if (o == 0 ? outputs[o] < 0 || view_.IsRewritten(outputs[o]) : outputs[o] >= 0) return true;
    return outputs.empty();
  }
  // Returns input i if it is a dense float32 constant that the host can read; else null.
  const Tensor* Floats(int node, size_t i) const {
    const auto inputs = view_.inputs(node);
    if (i >= inputs.size() || inputs[i] < 0 || view_.IsRewritten(inputs[i])) return nullptr;
    const Tensor* tensor = view_.constant(inputs[i]);
    const bool plain = tensor && tensor->dtype() == DType::kFloat32 && tensor->is_dense() &&
                       tensor->layout().is_standard() && IsHostAccessible(tensor->device().type);
    return plain ? tensor : nullptr;
  }
  bool LacksInput(int node, size_t i) const {
    return i >= view_.inputs(node).size() || view_.inputs(node)[i] < 0;
  }
  bool HasStatistics(int node, size_t channels) const {
    const Arguments& args = graph_.node(node).args();
    if (args.Get<int64_t>("training_mode", 0) != 0 || args.Get<int64_t>("spatial", 1) == 0)
      return false;
    for (size_t i = 1; i < 5; ++i) {
      const Tensor* numbers = Floats(node, i);
      if (!numbers || Index(numbers->numel()) != channels) return false;
    }
    return true;
  }
  // Returns the channels of a node whose weights can be scaled; 0 for any other node.
  size_t ScalableChannels(int node) const {
    if (IsTied(node)) return 0;
    const Tensor* numbers = Floats(node, 1);
    if (!numbers || numbers->rank() < 1) return 0;
    const size_t channels = Index(numbers->dim(0));
    if (IsStandard(node, "Conv") && numbers->rank() >= 3)
      return LacksInput(node, 2) || Floats(node, 2) ? channels : 0;
    if (IsStandard(node, "BatchNormalization") && numbers->rank() == 1 &&
        HasStatistics(node, channels))
      return channels;
    return 0;
  }
  // Returns the rank of a base's output; -1 if it is unknown.
  int RankOf(const Base& base) {
    if (IsStandard(base.node, "Conv")) return Floats(base.node, 1)->rank();
    const GraphTypes* const types = Types();
    if (!types) return -1;
    const SymbolicShape& shape = (*types)[view_.outputs(base.node)[0]].shape;
    return shape.has_rank() ? shape.rank() : -1;
  }
  // Returns the base that makes the value. Returns null unless `node` is the only reader of the
  // value, and its device and backend permit folding it into the base.
  const Base* BaseOf(int value, int node) const {
    const auto found = value < 0 ? base_of_.end() : base_of_.find(value);
    if (found == base_of_.end() || OnlyReader(value) < 0) return nullptr;
    const OperatorDef &def = graph_.node(node), &base = graph_.node(found->second);
    const bool same_place =
        def.device() == base.device() &&
        (def.backends().empty() || (def.backends() == base.backends() &&
                                    def.requires_backends() == base.requires_backends()));
    return same_place ? &bases_.at(found->second) : nullptr;
  }
  // Returns the scaling of a base combined with that of `node`, which reads the base's output; sets
  // `found_input_` to that output. Returns nullopt if the node cannot be folded.
  std::optional<ChannelScaling> Scaling(int node) {
    const OperatorDef& def = graph_.node(node);
    const auto inputs = view_.inputs(node);
    if (IsStandard(node, "BatchNormalization")) {
      const Base* base = BaseOf(inputs[0], node);
      if (!base || !HasStatistics(node, base->scaling.factors.size())) return {};
      found_input_ = inputs[0];
      return Together(*base, Normalization(node, base->scaling.factors.size()));
    }
    const bool is_product = IsStandard(node, "Mul") || IsStandard(node, "Div");
    if (!is_product && !IsStandard(node, "Add") && !IsStandard(node, "Sub")) return {};
    for (size_t i = 0; i < 2; ++i) {
      const Base* base = BaseOf(inputs[i], node);
      const Tensor* numbers = Floats(node, 1 - i);
      if (!base || !numbers || (i == 1 && def.type() == "Div")) continue;
      const size_t channels = base->scaling.factors.size();
      if (!IsByChannel(numbers->shape(), channels, RankOf(*base))) continue;
      ChannelScaling scaling(channels);
      for (size_t c = 0; c < channels; ++c) {
        const double number = numbers->data<float>()[numbers->numel() == 1 ? 0 : c];
        if (is_product)
          scaling.factors[c] = def.type() == "Div" ? 1 / number : number;
        else
          scaling.addends[c] = def.type() == "Sub" && i == 0 ? -number : number;
        if (def.type() == "Sub" && i == 1) scaling.factors[c] = -1;
      }
      found_input_ = inputs[i];
      return Together(*base, scaling);
    }
    return {};
  }
  // Returns the scaling of a base followed by `next`; nullopt if float32 cannot hold the base's new
  // weights or bias.
  std::optional<ChannelScaling> Together(const Base& base, const ChannelScaling& next) const {
    if (!next.IsFinite()) return {};
    ChannelScaling both = base.scaling;
    both.Then(next);
    const Tensor& weights = *Floats(base.node, 1);
    const Tensor* bias = Floats(base.node, 2);
    const size_t channels = both.factors.size(), of_channel = Index(weights.numel()) / channels;
    constexpr double kMost = (std::numeric_limits<float>::max)();
    constexpr double kLeast = (std::numeric_limits<float>::min)();
    for (size_t c = 0; c < channels; ++c) {
      double largest = 0;
      for (size_t i = c * of_channel; i < (c + 1) * of_channel; ++i)
        largest = (std::max)(largest, std::fabs(double{weights.data<float>()[i]}));
      const double factor = std::fabs(both.factors[c]);
      const double offset = (bias ? bias->data<float>()[c] : 0.f) * both.factors[c];
      if (!(largest * factor <= kMost) || !(std::fabs(offset + both.addends[c]) <= kMost))
        return {};
      // The largest weight must stay a normal float; far smaller weights may underflow.
      if (largest >= kLeast && factor > 0 && largest * factor < kLeast) return {};
    }
    return both;
  }
  // Returns the scaling that a BatchNormalization computes.
  ChannelScaling Normalization(int node, size_t channels) const {
    const auto number = [&](size_t i, size_t c) {
      return static_cast<double>(Floats(node, i)->data<float>()[c]);
    };
    const double epsilon = graph_.node(node).args().Get<float>("epsilon", 1e-5f);
    ChannelScaling scaling(channels);
    for (size_t c = 0; c < channels; ++c) {
      scaling.factors[c] = number(1, c) / std::sqrt(number(4, c) + epsilon);
      scaling.addends[c] = number(2, c) - number(3, c) * scaling.factors[c];
    }
    return scaling;
  }
  // True if a tensor of this shape, broadcast to this rank, is one number or one per channel.
  static bool IsByChannel(const Shape& shape, size_t channels, int rank) {
    if (rank < 0 || shape.rank() > rank) return false;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const bool of_channels = axis + rank - shape.rank() == 1;
      if (shape[axis] != 1 && !(of_channels && Index(shape[axis]) == channels)) return false;
    }
    return true;
  }

  // Gives the node weights that include its scaling, and the output name of the last folded node.
  void Scale(const Base& base, OperatorDef& def, std::vector<Graph::Constant>& constants) const {
    const bool is_conv = def.type() == "Conv";
    const ChannelScaling& scaling = base.scaling;
    const auto channels = static_cast<int64_t>(scaling.factors.size());
    const Tensor& given = *Floats(base.node, 1);
    const int64_t of_channel = given.numel() / channels;
    Tensor weights(given.shape(), DType::kFloat32), bias(Shape{channels}, DType::kFloat32);
    const Tensor* old_bias = Floats(base.node, 2);
    for (int64_t c = 0; c < channels; ++c) {
      const double factor = scaling.factors[Index(c)];
      for (int64_t i = c * of_channel; i < (c + 1) * of_channel; ++i)
        weights.mutable_data<float>()[i] = static_cast<float>(given.data<float>()[i] * factor);
      const double before = old_bias ? old_bias->data<float>()[c] : 0;
      bias.mutable_data<float>()[c] =
          static_cast<float>(before * factor + scaling.addends[Index(c)]);
    }
    const auto add = [&](size_t i, Tensor made, const char* hint) {
      std::string name = graph_.FreshName(StrCat(view_.name(base.output), hint));
      if (def.inputs().size() <= i) def.mutable_inputs().resize(i + 1);
      def.mutable_inputs()[i] = name;
      constants.push_back({std::move(name), std::move(made)});
    };
    add(1, std::move(weights), is_conv ? "@W" : "@scale");
    add(2, std::move(bias), "@B");
    def.mutable_outputs()[0] = view_.name(base.output);
  }
  std::map<int, Base> bases_;   // by node
  std::map<int, int> base_of_;  // by value: the node of the base that has this output
  int found_input_ = -1;
  bool has_folded_ = false;
};

}  // namespace detail

OPKIT_INLINE Graph FoldBatchNormalization(const Graph& graph) {
  return detail::BatchNormalizationFolder(graph).Result();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline const bool kFillsFoldBatchNormalization =
    g_fold_batch_normalization.Fill(&FoldBatchNormalization);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_BATCH_NORMALIZATION_IPP_
