// MergeQuantizedNodes' definition: at every operator that has a form on integers, checks its inputs
// for DequantizeLinear, and its readers for QuantizeLinear or a product with scales.
#ifndef OPKIT_GRAPH_PASSES_IMPL_QUANTIZED_NODES_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_QUANTIZED_NODES_IPP_

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"
#include "opkit/graph/passes/node_pass.hpp"
#include "opkit/graph/passes/quantized_nodes.hpp"
#include "opkit/graph/passes/standard_passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The constructor finds the patterns of nodes, and Result builds the graph without them.
class QuantizedNodeMerger : NodePass {
 public:
  explicit QuantizedNodeMerger(const Graph& graph)
      : NodePass(graph), nodes_(graph.nodes()), constants_(graph.constants()) {
    for (int node = 0; node < graph.num_nodes(); ++node)
      if (Is(node, "QuantizeLinear")) Evaluate(node);
    for (int node = 0; node < graph.num_nodes(); ++node)
      if (Is(node, "Conv"))
        LookAtConv(node);
      else if (Is(node, "MatMul"))
        LookAtMatMul(node);
      else if (Is(node, "Gemm"))
        LookAtGemm(node);
      else if (Is(node, "MatMulInteger"))
        LookAtScaledSums(node);
      else if (Is(node, "Add") || Is(node, "Mul"))
        LookAtBinary(node);
      else if (Is(node, "Concat"))
        LookAtConcat(node);
      else if (MovesElements(node))
        LookAtMove(node);
    for (int node = 0; node < graph_.num_nodes(); ++node)
      if (!removed_[node] && nodes_[node].type() == "QuantizeLinear" && Is(node, "QuantizeLinear"))
        LookAtFunction(node);
  }

  Graph Result() const {
    if (!has_merged_) return graph_;
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[node]) continue;
      const auto added = before_.find(node);
      if (added != before_.end())
        nodes.insert(nodes.end(), added->second.begin(), added->second.end());
      nodes.push_back(nodes_[node]);
    }
    return RemoveDeadNodes(WithNodes(std::move(nodes), constants_));
  }

 private:
  // The names of a tensor of integers, its scale and its zero point, with the constants.
  struct Integers {
    int value;  // -1: the QuantizeLinear of a result
    DType dtype;
    int64_t axis;
    const Tensor *scale, *zero_point;  // the latter is null for 0
    std::string scale_name, zero_point_name;

    bool HasOneScale() const {
      return scale->numel() == 1 && (!zero_point || zero_point->numel() == 1);
    }
    float Scale(int64_t i = 0) const { return scale->data<float>()[scale->numel() == 1 ? 0 : i]; }
    int64_t Zero(int64_t i = 0) const {
      return zero_point ? Element(*zero_point, zero_point->numel() == 1 ? 0 : i) : 0;
    }
  };
  // The QuantizeLinear behind a value, and an activation between them; -1 without one.
  struct Quantizer {
    int node, activation;
    Integers result;
  };

  static bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }
  // Returns an element of a tensor of int8, uint8 or int32.
  static int64_t Element(const Tensor& tensor, int64_t i) {
    if (tensor.dtype() == DType::kInt8) return tensor.data<int8_t>()[i];
    if (tensor.dtype() == DType::kUInt8) return tensor.data<uint8_t>()[i];
    return tensor.data<int32_t>()[i];
  }
  // Returns the constant if the host can read its elements in order, else null.
  const Tensor* Known(int value) const {
    if (value < 0 || view_.IsRewritten(value)) return nullptr;
    const auto evaluated = evaluated_.find(value);
    const Tensor* tensor =
        evaluated == evaluated_.end() ? view_.constant(value) : &evaluated->second;
    const bool plain = tensor && tensor->is_dense() && tensor->layout().is_standard() &&
                       IsHostAccessible(tensor->device().type);
    return plain ? tensor : nullptr;
  }
  // Runs a QuantizeLinear whose inputs are constants.
  void Evaluate(int node) {
    std::vector<const Tensor*> inputs;
    for (const int value : view_.inputs(node)) {
      inputs.push_back(Known(value));
      if (value >= 0 && !inputs.back()) return;
    }
    const OperatorDef& def = graph_.node(node);
    if (!MayEvaluate(def)) return;
    try {
      const int value = view_.outputs(node)[0];
      evaluated_[value] = EvaluateNode(def, inputs)[0];
      constants_.push_back({view_.name(value), evaluated_[value]});
      removed_[node] = 1;
      has_merged_ = true;
    } catch (...) {
      // The node fails again, and reports its error, when the graph runs.
    }
  }
  // Returns the integers on the other side of a DequantizeLinear or QuantizeLinear, whose inputs 1
  // and 2 are the scale and the zero point.
  std::optional<Integers> ReadScale(int node, DType dtype) const {
    const Arguments& args = graph_.node(node).args();
    const Tensor *scale = Known(Input(node, 1)), *zero_point = Known(Input(node, 2));
    if (!scale || scale->dtype() != DType::kFloat32 || scale->rank() > 1 || scale->numel() < 1 ||
        args.Get<int64_t>("block_size", 0) != 0 || args.Has("output_dtype") ||
        (Input(node, 2) >= 0 && (!zero_point || zero_point->numel() != scale->numel())))
      return {};
    for (int64_t i = 0; i < scale->numel(); ++i)
      if (!(scale->data<float>()[i] > 0) || !std::isfinite(scale->data<float>()[i])) return {};
    if (zero_point) dtype = zero_point->dtype();
    if (!IsByte(dtype) && dtype != DType::kInt32) return {};
    return Integers{-1,
                    dtype,
                    args.Get<int64_t>("axis", 1),
                    scale,
                    zero_point,
                    view_.name(Input(node, 1)),
                    zero_point ? view_.name(Input(node, 2)) : ""};
  }
  // Returns the integers that a value is dequantised from. The type is kUndefined if unknown.
  std::optional<Integers> Dequantized(int value) {
    const int node = value < 0 || view_.IsRewritten(value) ? -1 : view_.producer(value);
    if (node < 0 || !Is(node, "DequantizeLinear")) return {};
    const int from = Input(node, 0);
    const GraphTypes* const types = Types();
    if (!types) return {};  // Compile reports the error
    const DType dtype = (*types)[from].dtype;
    auto found = ReadScale(node, dtype);
    if (!found || (dtype != DType::kUndefined && dtype != found->dtype)) return {};
    found->value = from;
    return found;
  }
  std::optional<Integers> DequantizedBytes(int value) {
    auto found = Dequantized(value);
    if (found && !IsByte(found->dtype)) found.reset();
    return found;
  }
  // Returns the integers of input i, with one scale.
  std::optional<Integers> Activations(int node, size_t i) {
    auto found = DequantizedBytes(Input(node, i));
    if (found && !found->HasOneScale()) found.reset();
    return found;
  }
  // Returns the shape of a value, which has no rank if it is unknown.
  SymbolicShape ShapeOf(int value) {
    if (const Tensor* known = Known(value)) return known->shape();
    if (const GraphTypes* const types = Types()) return (*types)[value].shape;
    return {};
  }
  // Returns the extent of an axis of weights, the number of products in each sum; 0 if unknown.
  double ProductsOf(const Integers& weights, int axis) {
    const SymbolicShape shape = ShapeOf(weights.value);
    if (!shape.has_rank() || shape.rank() == 0) return 0;
    const Dim extent = shape[shape.rank() == 1 ? 0 : axis];
    return extent.is_known() ? static_cast<double>(extent.value()) : 0;
  }
  // True if a sum of so many products of two bytes, and a bias, cannot wrap around.
  static bool FitsInt32(double products, double bias = 0) {
    return products * 255 * 255 + std::fabs(bias) <= (std::numeric_limits<int32_t>::max)();
  }
  // Returns the integers of weights with one scale, or one for each index of an axis. The axis is
  // counted from the end if it is negative.
  std::optional<Integers> Weights(int node, size_t i, int64_t axis) {
    auto found = DequantizedBytes(Input(node, i));
    if (!found || found->HasOneScale()) return found;
    const Tensor* weights = Known(found->value);
    if (!weights) return {};
    const auto counted = [&](int64_t a) { return a < 0 ? a + weights->rank() : a; };
    const int64_t of = counted(axis);
    // A vector has no columns.
    const bool fits = weights->rank() > 1 && of >= 0 && counted(found->axis) == of &&
                      found->scale->numel() == weights->dim(static_cast<int>(of));
    return fits ? found : std::nullopt;
  }
  // Returns the numbers of a constant, float32 or dequantised, of rank at most 1.
  std::optional<std::vector<double>> Numbers(int value) {
    std::vector<double> numbers;
    if (const Tensor* tensor = Known(value)) {
      if (tensor->dtype() != DType::kFloat32 || tensor->rank() > 1) return {};
      for (int64_t i = 0; i < tensor->numel(); ++i) numbers.push_back(tensor->data<float>()[i]);
      return numbers;
    }
    const auto integers = Dequantized(value);
    const Tensor* tensor = integers ? Known(integers->value) : nullptr;
    if (!tensor || tensor->dtype() != integers->dtype || tensor->rank() > 1) return {};
    if (!integers->HasOneScale() && integers->scale->numel() != tensor->numel()) return {};
    for (int64_t i = 0; i < tensor->numel(); ++i)
      numbers.push_back(static_cast<double>(Element(*tensor, i) - integers->Zero(i)) *
                        integers->Scale(i));
    return numbers;
  }

  // Returns the QuantizeLinear that is the only reader of the node's output, or of a Relu or Clip
  // behind it that changes nothing in the quantised result.
  std::optional<Quantizer> QuantizerOf(int node) const {
    int value = view_.outputs(node)[0], reader = OnlyReader(value), activation = -1;
    if (reader >= 0 && (Is(reader, "Relu") || Is(reader, "Clip")) && Input(reader, 0) == value) {
      activation = reader;
      value = view_.outputs(reader)[0];
      reader = OnlyReader(value);
    }
    if (reader < 0 || !Is(reader, "QuantizeLinear") || Input(reader, 0) != value ||
        !AreTogether({node, reader, activation < 0 ? node : activation}))
      return {};
    auto result = ReadScale(reader, DType::kUInt8);
    if (!result || !IsByte(result->dtype) || !result->HasOneScale()) return {};
    if (activation >= 0 && !IsSaturation(activation, *result)) return {};
    return Quantizer{reader, activation, *result};
  }
  // True if the limits of a Relu or Clip become the limits of the quantised type or lie outside.
  bool IsSaturation(int activation, const Integers& result) const {
    const bool is_signed = result.dtype == DType::kInt8;
    const double least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    const auto steps = [&](float number) {
      return std::nearbyint(number / result.Scale()) + static_cast<double>(result.Zero());
    };
    if (graph_.node(activation).type() == "Relu") return steps(0) <= least;
    for (const size_t i : {1, 2}) {
      if (Input(activation, i) < 0) continue;
      const Tensor* limit = Known(Input(activation, i));
      if (!limit || limit->dtype() != DType::kFloat32 || limit->numel() != 1) return false;
      const double at = steps(*limit->data<float>());
      if (!(i == 1 ? at <= least : at >= most)) return false;
    }
    return true;
  }

  void LookAtConv(int node) {
    const auto x = Activations(node, 0), w = Weights(node, 1, 0);
    const auto q = x && w ? QuantizerOf(node) : std::nullopt;
    if (!q || !MayReplace(node, "QLinearConv")) return;
    const SymbolicShape kernels = ShapeOf(w->value);
    double products = 1;
    for (int axis = 1; kernels.has_rank() && axis < kernels.rank(); ++axis)
      if (kernels[axis].is_known()) products *= static_cast<double>(kernels[axis].value());
    if (!FitsInt32(products)) return;
    std::vector<std::string> bias;
    if (Input(node, 2) >= 0) {
      const auto numbers = Numbers(Input(node, 2));
      const auto rounded =
          numbers ? Rounded(*numbers, *x, *w, q->result.Scale(), products) : std::nullopt;
      if (!rounded) return;
      bias.push_back(AddConstant(q->node, "@B", *rounded));
    }
    ReplaceByQLinear(node, "QLinearConv", *x, *w, *q, std::move(bias));
  }
  // Returns a bias as int32 in steps of x's scale times w's; nullopt if a number is too far from a
  // step, or int32 does not hold it.
  static std::optional<Tensor> Rounded(const std::vector<double>& bias, const Integers& x,
                                       const Integers& w, float y_scale, double products) {
    const auto count = static_cast<int64_t>(bias.size());
    if (!w.HasOneScale() && w.scale->numel() != count) return {};
    Tensor rounded(Shape{count}, DType::kInt32);
    for (int64_t i = 0; i < count; ++i) {
      const double step = double{x.Scale()} * w.Scale(i);
      const double steps = std::nearbyint(bias[Index(i)] / step);
      if (!FitsInt32(products, steps) ||
          !(std::fabs(steps * step - bias[Index(i)]) <= y_scale / 16))
        return {};
      rounded.mutable_data<int32_t>()[i] = static_cast<int32_t>(steps);
    }
    return rounded;
  }
  void LookAtMatMul(int node) {
    const auto a = Activations(node, 0), b = Weights(node, 1, -1);
    if (!a || !b || !FitsInt32(ProductsOf(*b, -2))) return;
    const auto q = QuantizerOf(node);
    if (q && MayReplace(node, "QLinearMatMul"))
      return ReplaceByQLinear(node, "QLinearMatMul", *a, *b, *q, {});
    ReplaceByFloat(node, *a, *b, view_.name(b->value), "");
  }
  void LookAtGemm(int node) {
    const Arguments& args = graph_.node(node).args();
    const bool turned = args.Get<int64_t>("transB", 0) != 0;
    const auto a = Activations(node, 0), b = Weights(node, 1, turned ? 0 : 1);
    const Tensor* known = b ? Known(b->value) : nullptr;
    const bool has_bias = Input(node, 2) >= 0;
    if (!a || !known || known->rank() != 2 || args.Get<int64_t>("transA", 0) != 0 ||
        !FitsInt32(ProductsOf(*b, turned ? 1 : 0)) || args.Get<float>("alpha", 1) != 1 ||
        (has_bias && args.Get<float>("beta", 1) != 1) || !MayReplace(node, kToFloat))
      return;
    std::string bias;
    if (has_bias) {
      const auto numbers = Numbers(Input(node, 2));
      const auto columns = static_cast<size_t>(known->dim(turned ? 0 : 1));
      if (!numbers || numbers->size() != columns) return;
      bias = AddConstant(node, "@B",
                         Tensor::From<float>({static_cast<int64_t>(columns)},
                                             std::vector<float>(numbers->begin(), numbers->end())));
    }
    ReplaceByFloat(node, *a, *b,
                   turned ? AddConstant(node, "@W", Transposed(*known)) : view_.name(b->value),
                   bias);
  }
  // Merges a product whose sums a Cast and a Mul by two scales make numbers of, as tools write it
  // that leave the quantisation of activations to each run.
  void LookAtScaledSums(int node) {
    const int cast = OnlyReader(view_.outputs(node)[0]);
    if (cast < 0 || !Is(cast, "Cast") || !MakesFloats(cast)) return;
    const int product = OnlyReader(view_.outputs(cast)[0]);
    if (product < 0 || !Is(product, "Mul")) return;
    const int factors = Input(product, Input(product, 0) == view_.outputs(cast)[0] ? 1 : 0);
    const int scales = factors < 0 || view_.IsRewritten(factors) ? -1 : view_.producer(factors);
    const Tensor* b = Known(Input(node, 1));
    if (scales < 0 || !Is(scales, "Mul") || !b || b->rank() != 2 ||
        !AreTogether({node, cast, product, scales}) || !MayReplace(node, kToFloat))
      return;
    for (size_t i = 0; i < 2; ++i) {
      const int a_scale = Input(scales, i), b_scale = Input(scales, 1 - i);
      if (!IsOneNumber(a_scale, 1) || !IsOneNumber(Input(node, 2), 2) ||
          !IsByColumn(b_scale, b->dim(1)) ||
          (Input(node, 3) >= 0 && !IsByColumn(Input(node, 3), b->dim(1))))
        continue;
      OperatorDef def = graph_.node(node);
      def.Type(kToFloat);
      const auto name = [&](int value) { return value < 0 ? std::string() : view_.name(value); };
      def.mutable_inputs() = {name(Input(node, 0)), name(Input(node, 1)), name(a_scale),
                              name(b_scale),        name(Input(node, 2)), name(Input(node, 3))};
      const int sum = BiasBehind(product, b->dim(1));
      if (sum >= 0) {
        const size_t other = Input(sum, 0) == view_.outputs(product)[0] ? 1 : 0;
        def.Input(view_.name(Input(sum, other)));
      }
      const int last = sum >= 0 ? sum : product;
      def.mutable_outputs() = graph_.node(last).outputs();
      return Replace({node, cast, product, last}, std::move(def));
    }
  }
  // True if a Cast makes float32 of its input.
  bool MakesFloats(int cast) {
    const GraphTypes* const types = Types();
    return types && (*types)[view_.outputs(cast)[0]].dtype == DType::kFloat32;
  }
  // True if the value is left out, a constant of one element, or output `o` of a
  // DynamicQuantizeLinear.
  bool IsOneNumber(int value, int o) const {
    if (value < 0) return true;
    if (const Tensor* known = Known(value)) return known->numel() == 1 && known->rank() == 0;
    const int node = view_.IsRewritten(value) ? -1 : view_.producer(value);
    return node >= 0 && IsStandard(node, "DynamicQuantizeLinear") &&
           view_.outputs(node)[Index(o)] == value;
  }
  // True if the value is a constant of one element, or a list of one for each column.
  bool IsByColumn(int value, int64_t columns) const {
    const Tensor* known = Known(value);
    return known && (known->rank() == 0 || (known->rank() == 1 && known->numel() == columns));
  }
  // Returns the only reader of a product, if it adds a list of constants, one for each column; else
  // -1.
  int BiasBehind(int product, int64_t columns) const {
    const int value = view_.outputs(product)[0], sum = OnlyReader(value);
    if (sum < 0 || !Is(sum, "Add") || !AreTogether({product, sum})) return -1;
    const Tensor* bias = Known(Input(sum, Input(sum, 0) == value ? 1 : 0));
    const bool fits =
        bias && bias->dtype() == DType::kFloat32 && bias->rank() == 1 && bias->numel() == columns;
    return fits ? sum : -1;
  }
  static Tensor Transposed(const Tensor& bytes) {
    const int64_t rows = bytes.dim(0), columns = bytes.dim(1);
    Tensor out(Shape{columns, rows}, bytes.dtype());
    const auto* from = static_cast<const uint8_t*>(bytes.raw_data());
    auto* to = static_cast<uint8_t*>(out.raw_mutable_data());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        to[column * rows + row] = from[row * columns + column];
    return out;
  }
  // True if the node's elements are elements of input 0, or the largest of several.
  bool MovesElements(int node) const {
    for (const char* op : {"Reshape", "Transpose", "MaxPool", "Flatten", "Squeeze", "Unsqueeze",
                           "Slice", "Gather", "Identity", "DepthToSpace", "SpaceToDepth"})
      if (Is(node, op)) return true;
    return false;
  }
  void LookAtMove(int node) {
    const auto x = Activations(node, 0);
    const auto q = x ? QuantizerOf(node) : std::nullopt;
    if (!q || q->activation >= 0 || x->dtype != q->result.dtype ||
        x->Scale() != q->result.Scale() || x->Zero() != q->result.Zero() ||
        !MayReplace(node, graph_.node(node).type()))
      return;
    OperatorDef def = graph_.node(node);
    def.mutable_inputs()[0] = view_.name(x->value);
    def.mutable_outputs() = graph_.node(q->node).outputs();
    Replace({node, q->node}, std::move(def));
  }

  // Merges a sum or product of two quantised tensors.
  void LookAtBinary(int node) {
    const char* const op =
        Is(node, "Add") ? "com.microsoft.QLinearAdd" : "com.microsoft.QLinearMul";
    const auto a = Activations(node, 0), b = Activations(node, 1);
    const auto q = a && b ? QuantizerOf(node) : std::nullopt;
    if (!q || a->dtype != b->dtype || a->dtype != q->result.dtype || !MayReplace(node, op)) return;
    OperatorDef def = graph_.node(node);
    def.Type(op);
    def.mutable_inputs() = {view_.name(a->value), a->scale_name, a->zero_point_name,
                            view_.name(b->value), b->scale_name, b->zero_point_name,
                            q->result.scale_name};
    if (q->result.zero_point) def.Input(q->result.zero_point_name);
    def.mutable_outputs() = graph_.node(q->node).outputs();
    Replace({node, q->activation, q->node}, std::move(def));
  }
  // Concatenates integers. Parts with another scale or zero point than the result's are looked up.
  void LookAtConcat(int node) {
    const auto q = QuantizerOf(node);
    if (!q || !MayReplace(node, kMap)) return;
    OperatorDef def = graph_.node(node);
    for (size_t i = 0; i < def.inputs().size(); ++i)
      if (!Activations(node, i)) return;
    std::vector<OperatorDef> maps;
    std::map<std::string, std::string> mapped;  // from the name of a part to that of its integers
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const auto part = Activations(node, i);
      std::string& name = mapped[def.inputs()[i]];
      if (name.empty() && HaveOneScale(*part, q->result)) name = view_.name(part->value);
      if (name.empty()) {
        auto table = TableOf({view_.producer(Input(node, i)), q->node});
        if (!table) return;
        name = graph_.FreshName(StrCat(graph_.node(q->node).outputs()[0], "@part", i));
        maps.push_back(MapNode(node, view_.name(part->value), std::move(*table), name));
      }
      def.mutable_inputs()[i] = name;
    }
    def.mutable_outputs() = graph_.node(q->node).outputs();
    Replace({node, q->activation, q->node}, std::move(def));
    before_[q->node] = std::move(maps);
  }
  // Merges a QuantizeLinear and the functions of one tensor of bytes before it to a lookup in a
  // table. A node that moves the bytes may come first.
  void LookAtFunction(int q) {
    const auto result = ReadScale(q, DType::kUInt8);
    if (!result || !IsByte(result->dtype) || !result->HasOneScale() || !MayReplace(q, kMap)) return;
    std::vector<int> chain{q};
    for (int value = Input(q, 0);;) {
      const int node = value < 0 || view_.IsRewritten(value) ? -1 : view_.producer(value);
      if (node < 0 || removed_[node] || nodes_[node].type() != graph_.node(node).type() ||
          !AreTogether({q, node}))
        return;
      if (Is(node, "DequantizeLinear")) {
        const auto bytes = DequantizedBytes(value);
        if (!bytes || !bytes->HasOneScale()) return;
        chain.insert(chain.begin(), node);
        return ReplaceByTable(chain, view_.name(bytes->value), -1);
      }
      if (OnlyReader(value) != chain.front()) return;
      // MaxPool takes longer on integers than a lookup saves.
      if (MovesElements(node) && !Is(node, "MaxPool")) {
        const auto bytes = Activations(node, 0);
        if (!bytes || !MayReplace(node, graph_.node(node).type())) return;
        chain.insert(chain.begin(), view_.producer(Input(node, 0)));
        return ReplaceByTable(chain, view_.name(bytes->value), node);
      }
      value = ArgumentOf(node);
      chain.insert(chain.begin(), node);
    }
  }
  // Returns the only input that is not a constant, of a node that computes each element from one
  // element of it; -1 for other nodes.
  int ArgumentOf(int node) const {
    bool fits = false;
    for (const char* op : {"Abs",     "Add",         "Celu",      "Clip",
                           "Div",     "Elu",         "Erf",       "Exp",
                           "Gelu",    "HardSigmoid", "HardSwish", "LeakyRelu",
                           "Max",     "Min",         "Mish",      "Mul",
                           "Neg",     "Pow",         "Relu",      "Selu",
                           "Sigmoid", "Softplus",    "Softsign",  "Sqrt",
                           "Sub",     "Swish",       "Tanh",      "ThresholdedRelu"})
      fits = fits || Is(node, op);
    int argument = -1;
    for (size_t i = 0; fits && i < view_.inputs(node).size(); ++i) {
      const int input = Input(node, i);
      if (input < 0) continue;
      const Tensor* known = Known(input);
      if (!known && argument >= 0) return -1;
      if (!known)
        argument = input;
      else if (known->rank() != 0)  // another rank could be that of the result
        return -1;
    }
    return argument;
  }
  static bool HaveOneScale(const Integers& a, const Integers& b) {
    return a.dtype == b.dtype && a.Scale() == b.Scale() && a.Zero() == b.Zero();
  }
  // Returns what a DequantizeLinear and the nodes behind it make of the bytes from 0 to 255, which
  // are the input of each node that is not a constant; nullopt if a node fails.
  std::optional<Tensor> TableOf(const std::vector<int>& nodes) {
    Tensor table(Shape{256}, DequantizedBytes(view_.outputs(nodes[0])[0])->dtype);
    for (int i = 0; i < 256; ++i)
      static_cast<uint8_t*>(table.raw_mutable_data())[i] = static_cast<uint8_t>(i);
    try {
      for (const int node : nodes) {
        const OperatorDef& def = graph_.node(node);
        if (!MayEvaluate(def)) return {};
        std::vector<const Tensor*> inputs;
        for (size_t i = 0; i < def.inputs().size(); ++i) {
          const int input = Input(node, i);
          const Tensor* known = node == nodes[0] && i == 0 ? nullptr : Known(input);
          inputs.push_back(known || input < 0 ? known : &table);
        }
        table = EvaluateNode(def, inputs)[0];
      }
    } catch (...) {
      return {};  // the node fails again, and reports its error, when the graph runs
    }
    return table;
  }
  // Returns a lookup of bytes on the device of a node.
  OperatorDef MapNode(int node, std::string bytes, Tensor table, std::string to) {
    std::string name = graph_.FreshName(StrCat(to, "@table"));
    constants_.push_back({name, std::move(table)});
    OperatorDef def(kMap, {std::move(bytes), std::move(name)}, {std::move(to)});
    return std::move(def.Device(graph_.node(node).device()));
  }
  // Replaces a chain from a DequantizeLinear to a QuantizeLinear by a lookup. The node `move` moves
  // the bytes first, unless it is -1.
  void ReplaceByTable(const std::vector<int>& chain, std::string bytes, int move) {
    auto table = TableOf(chain);
    if (!table) return;
    const int q = chain.back();
    const std::string to = graph_.node(q).outputs()[0];
    if (move >= 0) {
      OperatorDef def = graph_.node(move);
      def.mutable_inputs()[0] = std::move(bytes);
      bytes = graph_.FreshName(StrCat(to, "@moved"));
      def.mutable_outputs() = {bytes};
      before_[q].push_back(std::move(def));
      removed_[move] = 1;
    }
    for (size_t i = 1; i + 1 < chain.size(); ++i) removed_[chain[i]] = 1;
    Replace({q}, MapNode(q, std::move(bytes), std::move(*table), to));
  }

  static constexpr const char* kMap = "opkit.MapBytes";
  static constexpr const char* kToFloat = "com.microsoft.MatMulIntegerToFloat";
  // True if an operator, which must be registered, may take the node's place.
  bool MayReplace(int node, std::string_view op) const {
    const OperatorDef& def = graph_.node(node);
    return !def.requires_backends() && IsHostAccessible(def.device().type) &&
           OpRegistry::Global().FindSchema(op);
  }
  std::string AddConstant(int node, const char* hint, Tensor value) {
    std::string name = graph_.FreshName(StrCat(graph_.node(node).outputs()[0], hint));
    constants_.push_back({name, std::move(value)});
    return name;
  }
  // Returns the name of the zero point, a new constant for 0.
  std::string ZeroPoint(int node, const char* hint, const Integers& integers) {
    if (integers.zero_point) return integers.zero_point_name;
    return AddConstant(
        node, hint,
        integers.dtype == DType::kInt8 ? Tensor::Scalar<int8_t>(0) : Tensor::Scalar<uint8_t>(0));
  }
  void ReplaceByQLinear(int node, const char* op, const Integers& x, const Integers& w,
                        const Quantizer& q, std::vector<std::string> bias) {
    std::vector<std::string> inputs{view_.name(x.value),
                                    x.scale_name,
                                    ZeroPoint(q.node, "@x_zero_point", x),
                                    view_.name(w.value),
                                    w.scale_name,
                                    ZeroPoint(q.node, "@w_zero_point", w),
                                    q.result.scale_name,
                                    ZeroPoint(q.node, "@y_zero_point", q.result)};
    inputs.insert(inputs.end(), bias.begin(), bias.end());
    OperatorDef def = graph_.node(node);
    def.Type(op);
    def.mutable_inputs() = std::move(inputs);
    def.mutable_outputs() = graph_.node(q.node).outputs();
    Replace({node, q.activation, q.node}, std::move(def));
  }
  void ReplaceByFloat(int node, const Integers& a, const Integers& b, std::string b_name,
                      std::string bias) {
    if (!MayReplace(node, kToFloat)) return;
    OperatorDef def = graph_.node(node);
    def.Type(kToFloat);
    def.mutable_args() = {};
    def.mutable_inputs() = {view_.name(a.value), std::move(b_name), a.scale_name,
                            b.scale_name,        a.zero_point_name, b.zero_point_name};
    if (!bias.empty()) def.Input(std::move(bias));
    Replace({node}, std::move(def));
  }
  // Puts a node in the place of the last of these nodes and removes the others. Passes over -1.
  void Replace(std::initializer_list<int> nodes, OperatorDef def) {
    for (const int node : nodes)
      if (node >= 0) removed_[node] = 1;
    const int last = *(nodes.end() - 1);
    removed_[last] = 0;
    nodes_[last] = std::move(def);
    has_merged_ = true;
  }

  IndexedVector<OperatorDef> nodes_;
  std::vector<Graph::Constant> constants_;
  std::map<int, Tensor> evaluated_;                 // by value: results of Evaluate
  std::map<int, std::vector<OperatorDef>> before_;  // by node: new nodes in front of it
  bool has_merged_ = false;
};

}  // namespace detail

OPKIT_INLINE Graph MergeQuantizedNodes(const Graph& graph) {
  return detail::QuantizedNodeMerger(graph).Result();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline const bool kFillsMergeQuantizedNodes =
    g_merge_quantized_nodes.Fill(&MergeQuantizedNodes);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_QUANTIZED_NODES_IPP_
