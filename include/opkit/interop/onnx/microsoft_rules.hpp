// The rules that rewrite operators of ONNX Runtime's domain, com.microsoft, to ONNX's own. Files
// that ONNX Runtime's tools have optimised or quantised contain them. Every backend's kernels and
// all passes then serve these models. Source:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_INTEROP_ONNX_MICROSOFT_RULES_HPP_
#define OPKIT_INTEROP_ONNX_MICROSOFT_RULES_HPP_

#include <cmath>
#include <limits>

#include "opkit/base/algorithm.hpp"
#include "opkit/interop/onnx/scope.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The nodes that take the place of one node. The last of them becomes the node itself.
class OnnxExpansion {
 public:
  OnnxExpansion(OnnxScope& scope, OperatorDef& def) : scope_(scope), def_(def) {}

  OnnxScope& scope() { return scope_; }
  const Arguments& args() const { return def_.args(); }
  // Returns the name of input i; "" if the node leaves it out.
  std::string Optional(size_t i) const {
    return i < def_.inputs().size() ? def_.inputs()[i] : std::string();
  }
  bool Has(size_t i) const { return !Optional(i).empty(); }
  // Returns the name of input i. Throws kInvalidArgument if the node leaves it out.
  std::string In(size_t i) const {
    if (!Has(i)) Throw(ErrorCode::kInvalidArgument, "it needs input ", i);
    return Optional(i);
  }
  size_t num_inputs() const { return def_.inputs().size(); }
  // Returns the name of output o; "" if the node leaves it out.
  std::string Out(size_t o) const {
    return o < def_.outputs().size() ? def_.outputs()[o] : std::string();
  }

  // Adds a node with one output and returns the output's name: a fresh one, or `result`.
  std::string Node(const std::string& op, std::vector<std::string> inputs, Arguments args = {},
                   std::string result = "") {
    if (result.empty()) result = scope_.FreshName(def_, op.c_str());
    scope_.AddNode(OperatorDef(op, std::move(inputs), {result}, std::move(args)));
    return result;
  }
  // Makes the last node. Its first output is that of the node which is rewritten.
  void Last(const std::string& op, std::vector<std::string> inputs, Arguments args = {},
            std::vector<std::string> outputs = {}) {
    if (outputs.empty()) outputs = {Out(0)};
    OperatorDef last(op, std::move(inputs), std::move(outputs), std::move(args));
    def_ = std::move(last.Name(def_.name()));
  }

  std::string Ints(std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return scope_.AddConstant(def_, "ints", Tensor::From<int64_t>({count}, values));
  }
  std::string Int(int64_t value) {
    return scope_.AddConstant(def_, "int", Tensor::Scalar<int64_t>(value));
  }
  // Adds a scalar of the type of a value, which is float32 unless it is known.
  std::string Number(float value, const std::string& like) {
    const DType dtype = scope_.InfoOf(like).dtype;
    return scope_.AddConstant(def_, "number",
                              dtype == DType::kFloat16    ? Tensor::Scalar(float16(value))
                              : dtype == DType::kBFloat16 ? Tensor::Scalar(bfloat16(value))
                              : dtype == DType::kFloat64  ? Tensor::Scalar(double{value})
                                                          : Tensor::Scalar(value));
  }
  // Returns a value as it is if input i is left out, else their sum.
  std::string Plus(const std::string& value, size_t i) {
    return Has(i) ? Node("Add", {value, In(i)}) : value;
  }
  std::string Unsqueezed(const std::string& value, std::vector<int64_t> axes) {
    return Node("Unsqueeze", {value, Ints(std::move(axes))});
  }
  // Returns extent `axis` of a value as a scalar.
  std::string Extent(const std::string& value, int64_t axis) {
    return Node("Gather", {Node("Shape", {value}), Int(axis)});
  }
  // Returns the numbers of a quantised input. Its scale and zero point are the next two inputs.
  std::string Dequantized(size_t i) {
    std::vector<std::string> inputs{In(i), In(i + 1)};
    if (Has(i + 2)) inputs.push_back(In(i + 2));
    return Node("DequantizeLinear", std::move(inputs));
  }
  // Quantises a value, as the last node. Inputs `scale` and `scale` + 1 are the scale and zero
  // point. Without a zero point the result has the type of input `like`.
  void LastQuantized(const std::string& value, size_t scale, size_t like) {
    if (Has(scale + 1)) return Last("QuantizeLinear", {value, In(scale), In(scale + 1)});
    Last("QuantizeLinear", {value, In(scale)},
         {{"output_dtype", OnnxNumberOf(scope_.InfoOf(In(like)).dtype)}});
  }

 private:
  OnnxScope& scope_;
  OperatorDef& def_;
};

// The rules, each named after its operator.
class OnnxMicrosoftRules {
 public:
  using Rule = void (*)(OnnxExpansion& e);
  struct Row {
    const char* type;
    Rule rule;
    size_t outputs;               // at most
    std::string_view attributes;  // each has a blank before and behind it
  };
  static const Row* Find(const std::string& type);

  static void Gelu(OnnxExpansion& e) { e.Last("Gelu", {e.In(0)}); }
  static void BiasGelu(OnnxExpansion& e) { e.Last("Gelu", {e.Node("Add", {e.In(0), e.In(1)})}); }
  static void FastGelu(OnnxExpansion& e) {
    e.Last("Gelu", {e.Plus(e.In(0), 1)}, {{"approximate", "tanh"}});
  }

  static void QuickGelu(OnnxExpansion& e) {
    e.Last("Swish", {e.In(0)}, {{"alpha", e.args().Get<float>("alpha", 1.702f)}});
  }

  static void FusedMatMul(OnnxExpansion& e) {
    const auto alpha = e.args().Get<float>("alpha", 1.f);
    const std::string a = Turned(e, 0, "transBatchA", "transA");
    const std::string b = Turned(e, 1, "transBatchB", "transB");
    if (alpha == 1) return e.Last("MatMul", {a, b});
    e.Last("Mul", {e.Node("MatMul", {a, b}), e.Number(alpha, e.In(0))});
  }
  static void FusedConv(OnnxExpansion& e) {
    Arguments args = e.args();
    const auto activation = args.Get<std::string>("activation", "");
    const auto params = args.Get<std::vector<float>>("activation_params", {});
    args.Remove("activation");
    args.Remove("activation_params");
    std::vector<std::string> inputs{e.In(0), e.In(1)};
    if (e.Has(2)) inputs.push_back(e.In(2));
    const std::string y = e.Plus(e.Node("Conv", std::move(inputs), std::move(args)), 3);
    Activate(e, y, activation, params);
  }
  static void FusedGemm(OnnxExpansion& e) {
    Arguments args = e.args();
    const auto activation = args.Get<std::string>("activation", "");
    std::vector<float> params;
    for (const char* name : {"activation_alpha", "activation_beta"})
      if (args.Has(name)) params.push_back(args.Get<float>(name, 0.f));
    for (const char* name :
         {"activation", "activation_alpha", "activation_beta", "activation_gamma"})
      args.Remove(name);
    std::vector<std::string> inputs{e.In(0), e.In(1)};
    if (e.Has(2)) inputs.push_back(e.In(2));
    Activate(e, e.Node("Gemm", std::move(inputs), std::move(args)), activation, params);
  }

  // Outputs 1 and 2, the mean and the inverse standard deviation, are those of the sum's rows.
  static void SkipLayerNormalization(OnnxExpansion& e) {
    const std::string sum = SkipSum(e, 4);
    std::vector<std::string> inputs{sum, e.In(2)}, outputs{e.Out(0)};
    if (e.Has(3)) inputs.push_back(e.In(3));
    if (!e.Out(1).empty() || !e.Out(2).empty()) outputs = {e.Out(0), e.Out(1), e.Out(2)};
    e.Last("LayerNormalization", std::move(inputs), Epsilon(e), std::move(outputs));
  }
  // ONNX Runtime writes this operator with ONNX's own domain.
  static void SimplifiedLayerNormalization(OnnxExpansion& e) {
    e.Last("RMSNormalization", {e.In(0), e.In(1)}, e.args());
  }
  static void SkipSimplifiedLayerNormalization(OnnxExpansion& e) {
    if (!e.Out(1).empty() || !e.Out(2).empty())
      Throw(ErrorCode::kUnsupported, "its outputs of training are used");
    e.Last("RMSNormalization", {SkipSum(e, 3), e.In(2)}, Epsilon(e));
  }
  // Sums embeddings of words, of positions and, where given, of segments, and normalises them.
  static void EmbedLayerNormalization(OnnxExpansion& e) {
    std::string positions;
    if (e.Has(8))
      positions = e.Node("Gather", {e.In(3), e.In(8)});
    else
      positions =
          e.Node("Slice", {e.In(3), e.Ints({0}),
                           e.Node("Shape", {e.In(0)}, {{"start", 1}, {"end", 2}}), e.Ints({0})});
    std::string sum = e.Node("Add", {e.Node("Gather", {e.In(2), e.In(0)}), positions});
    if (e.Has(1)) sum = e.Node("Add", {sum, e.Node("Gather", {e.In(4), e.In(1)})});
    if (!e.Out(1).empty()) {
      if (e.Has(7))
        e.Node("ReduceSum", {e.In(7), e.Ints({1})}, {{"keepdims", 0}}, e.Out(1));
      else
        e.Node("ConstantOfShape", {e.Node("Shape", {e.In(0)}, {{"start", 0}, {"end", 1}})},
               {{"value", Tensor::From<int32_t>({1}, {0})}}, e.Out(1));
    }
    if (!e.Out(2).empty()) e.Node("Identity", {sum}, {}, e.Out(2));
    e.Last("LayerNormalization", {sum, e.In(5), e.In(6)}, Epsilon(e));
  }

  static void Attention(OnnxExpansion& e) {
    if (e.Has(6))
      Throw(ErrorCode::kUnsupported, "it writes to its past, which opkit's values do not allow");
    const std::string x = e.Plus(e.Node("MatMul", {e.In(0), e.In(1)}), 2);
    Attend(e, x, {.mask = e.Optional(3), .past = e.Optional(4), .bias = e.Optional(5)});
  }
  static void QAttention(OnnxExpansion& e) {
    const std::string x =
        e.Node("com.microsoft.MatMulIntegerToFloat",
               {e.In(0), e.In(1), e.In(3), e.In(4), e.Optional(6), e.Optional(7), e.In(2)});
    Attend(e, x, {.mask = e.Optional(5), .past = e.Optional(8), .bias = ""});
  }

  // Attention of queries, keys and values [batch, count, heads * size]. A mask has a number for
  // each key [batch, keys].
  static void MultiHeadAttention(OnnxExpansion& e) {
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    const bool is_causal = e.args().Get<int64_t>("unidirectional", 0) != 0;
    std::vector<std::string> parts{e.In(0), e.Optional(1), e.Optional(2)};
    for (const std::string& part : parts) {
      const SymbolicShape shape =
          part.empty() ? SymbolicShape() : e.scope().ProvenInfoOf(part).shape;
      if (!shape.has_rank() || shape.rank() != 3)
        Throw(ErrorCode::kUnsupported,
              "its query, key and value must be three inputs that are known to have rank 3");
    }
    for (size_t i = 8; i < 10; ++i)
      if (e.Has(i)) Throw(ErrorCode::kUnsupported, "it has input ", i);
    if (is_causal && e.Has(6))
      Throw(ErrorCode::kUnsupported, "it has a past, and unidirectional is not 0");
    if (e.Has(3)) {
      const Dim all = Last(e.scope().ProvenInfoOf(e.In(3)).shape);
      const Dim of_query = Last(e.scope().ProvenInfoOf(parts[0]).shape);
      if (!all.is_known() || !of_query.is_known() || all.value() < 2 * of_query.value())
        Throw(ErrorCode::kUnsupported, "the sizes of its query and bias must be known");
      const int64_t n = of_query.value();
      std::vector<std::string> biases;
      for (const char* what : {"q", "k", "v"})
        biases.push_back(e.scope().FreshName(e.In(3) + "/" + what));
      e.scope().AddNode(OperatorDef("Split", {e.In(3), e.Ints({n, n, all.value() - 2 * n})}, biases,
                                    {{"axis", 0}}));
      for (size_t i = 0; i < 3; ++i) parts[i] = e.Node("Add", {parts[i], biases[i]});
    }
    std::string mask = e.Optional(5);
    if (e.Has(4)) {
      const SymbolicShape shape = e.scope().InfoOf(e.In(4)).shape;
      if (!shape.has_rank() || shape.rank() != 2)
        Throw(ErrorCode::kUnsupported, "its mask is ", ToString(shape), ", expected [batch, keys]");
      const auto low = e.args().Get<float>("mask_filter_value", -10000.f);
      const std::string is_set = e.Node("Cast", {e.In(4)}, {{"to", OnnxNumberOf(DType::kBool)}});
      const std::string added = Filtered(e, parts[0], e.Unsqueezed(is_set, {1, 2}), low);
      mask = mask.empty() ? added : e.Node("Add", {mask, added});
    }
    Arguments args{
        {"q_num_heads", heads}, {"kv_num_heads", heads}, {"is_causal", int64_t{is_causal}}};
    if (const auto scale = e.args().Get<float>("scale", 0.f); scale != 0) args.Set("scale", scale);
    std::vector<std::string> outputs{e.Out(0)};
    if (!e.Out(1).empty() || !e.Out(2).empty()) outputs = {e.Out(0), e.Out(1), e.Out(2)};
    e.Last("Attention", {parts[0], parts[1], parts[2], mask, e.Optional(6), e.Optional(7)},
           std::move(args), std::move(outputs));
  }

  // Causal attention whose keys and values go to a cache [batch, heads, rows, size] of past steps.
  // The new steps of element b begin at row seqlens_k[b] + 1 - steps of the cache, or at row 0 if
  // that is negative: then some of them are padding.
  static void GroupQueryAttention(OnnxExpansion& e) {
    RefuseInGroupQueryAttention(e);
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    const auto kv_heads = e.args().Get<int64_t>("kv_num_heads", 0);
    const auto window = e.args().Get<int64_t>("local_window_size", -1);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
      Throw(ErrorCode::kInvalidArgument, "its num_heads is ", heads, " and its kv_num_heads is ",
            kv_heads, ", expected a multiple of the number of key heads");
    std::vector<std::string> parts = HeadsOf(e, heads, kv_heads);
    const std::string steps = e.Extent(parts[0], 2), zero = e.Int(0), one = e.Int(1);
    const std::string last = e.Node("Reshape", {AsInt64(e, e.In(5)), e.Ints({-1})});
    const std::string first =
        e.Node("Max", {e.Node("Sub", {last, e.Node("Sub", {steps, one})}), zero});
    const std::string places =
        e.Node("Add", {e.Unsqueezed(first, {1}), e.Node("Range", {zero, steps, one})});
    if (e.args().Get<int64_t>("do_rotary", 0) != 0) {
      Arguments args{{"interleaved", e.args().Get<int64_t>("rotary_interleaved", 0)}};
      SetRotated(e, e.In(7), args);
      for (size_t i = 0; i < 2; ++i)
        parts[i] = e.Node("RotaryEmbedding", {parts[i], e.In(7), e.In(8), places}, args);
    }
    for (size_t i = 1; i < 3; ++i) {
      if (e.Has(3)) {  // a cache without room for total_sequence_length rows becomes longer
        const std::string total = AsInt64(e, e.Node("Reshape", {e.In(6), e.Ints({})}));
        const std::string missing =
            e.Node("Max", {e.Node("Sub", {total, e.Extent(e.In(i + 2), 2)}), zero});
        const std::string cache = Padded(e, e.In(i + 2), zero, missing, 2);
        parts[i] = e.Node("TensorScatter", {cache, parts[i], first});
      }
      if (!e.Out(i).empty()) e.Node("Identity", {parts[i]}, {}, e.Out(i));
    }
    Arguments args{{"softcap", e.args().Get<float>("softcap", 0.f)}};
    if (const auto scale = e.args().Get<float>("scale", 0.f); scale != 0) args.Set("scale", scale);
    const bool has_sink = e.Has(11) || e.args().Get<int64_t>("smooth_softmax", -1) > 0;
    std::string mask;
    if (!e.Has(3) && window < 0 && !e.Has(10) && !has_sink)
      args.Set("is_causal", 1);
    else
      mask = MaskOfCache(e, parts[1], places, window, e.Has(10) || has_sink);
    if (has_sink) {  // one more key, whose score is that of the sink and whose value is 0
      if (e.Has(11)) {
        const std::string sinks = e.Node("Reshape", {e.In(11), e.Ints({1, -1, 1, 1})});
        mask = e.Node("Add", {Padded(e, mask, zero, one, 3),
                              Padded(e, sinks, e.Extent(parts[1], 2), zero, 3)});
      } else {
        mask = Padded(e, mask, zero, one, 3);
      }
      for (size_t i = 1; i < 3; ++i) parts[i] = Padded(e, parts[i], zero, one, 2);
    }
    const std::string out = e.Node("Attention", {parts[0], parts[1], parts[2], mask}, args);
    e.Last("Reshape", {e.Node("Transpose", {out}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       e.Ints({0, 0, -1})});
  }

  // ONNX's operator takes the caches before the positions, and a place for each step.
  static void RotaryEmbedding(OnnxExpansion& e) {
    if (e.args().Get<float>("scale", 1.f) != 1)
      Throw(ErrorCode::kUnsupported, "its scale is not 1");
    if (e.args().Get<int64_t>("is_packed_batching", 0) != 0)
      Throw(ErrorCode::kUnsupported, "its is_packed_batching is not 0");
    const SymbolicShape x = e.scope().ProvenInfoOf(e.In(0)).shape;
    const SymbolicShape places_shape = e.scope().ProvenInfoOf(e.In(1)).shape;
    const SymbolicShape cache = e.scope().ProvenInfoOf(e.In(2)).shape;
    if (!x.has_rank() || (x.rank() != 3 && x.rank() != 4) || !places_shape.has_rank())
      Throw(ErrorCode::kUnsupported,
            "its input must be known to have rank 3 or 4, and the rank of "
            "its position_ids must be known");
    auto heads = e.args().Get<int64_t>("num_heads", 0);
    const auto rotated = e.args().Get<int64_t>("rotary_embedding_dim", 0);
    if (x.rank() == 3 && heads == 0) {  // the whole of each head is rotated
      const Dim half = Last(cache), size = Last(x);
      if (!half.is_known() || !size.is_known() || half.value() < 1)
        Throw(ErrorCode::kUnsupported,
              "without num_heads, the sizes of its input and of cos_cache must be known");
      heads = size.value() / (2 * half.value());
    }
    std::string places = e.In(1);
    if (places_shape.rank() == 1) {  // that of the first step
      const std::string shape = e.Node("Shape", {e.In(0)});
      const std::string steps_axis = e.Ints({x.rank() == 4 ? 2 : 1});
      const std::string batch_and_steps = e.Node(
          "Concat", {e.Node("Gather", {shape, e.Ints({0})}), e.Node("Gather", {shape, steps_axis})},
          {{"axis", 0}});
      const std::string steps =
          e.Node("Range", {e.Int(0), e.Extent(e.In(0), x.rank() == 4 ? 2 : 1), e.Int(1)});
      places = e.Node("Expand", {e.Node("Add", {steps, places}), batch_and_steps});
    }
    Arguments args{{"interleaved", e.args().Get<int64_t>("interleaved", 0)},
                   {"rotary_embedding_dim", rotated}};
    if (x.rank() == 3) args.Set("num_heads", heads);
    e.Last("RotaryEmbedding", {e.In(0), e.In(2), e.In(3), places}, std::move(args));
  }

  static void QuantizeLinear(OnnxExpansion& e) { SameInOnnx(e, "QuantizeLinear"); }
  static void DequantizeLinear(OnnxExpansion& e) { SameInOnnx(e, "DequantizeLinear"); }

  static void QLinearWhere(OnnxExpansion& e) {
    const std::string a = e.Dequantized(1), b = e.Dequantized(4);
    e.LastQuantized(e.Node("Where", {e.In(0), a, b}), 7, 1);
  }
  static void QLinearAdd(OnnxExpansion& e) { QLinearBinary(e, "Add"); }
  static void QLinearMul(OnnxExpansion& e) { QLinearBinary(e, "Mul"); }
  static void QLinearSigmoid(OnnxExpansion& e) { QLinearUnary(e, "Sigmoid"); }
  static void QLinearLeakyRelu(OnnxExpansion& e) { QLinearUnary(e, "LeakyRelu"); }
  static void QLinearAveragePool(OnnxExpansion& e) { QLinearPool(e, "AveragePool"); }
  static void QLinearGlobalAveragePool(OnnxExpansion& e) { QLinearPool(e, "GlobalAveragePool"); }
  // Before opset 13 of ONNX, Softmax treated all axes from `axis` on as one.
  static void QLinearSoftmax(OnnxExpansion& e) {
    const auto axis = e.args().Get<int64_t>("axis", -1);
    const std::string x = e.Dequantized(0);
    if (e.args().Get<int64_t>("opset", 13) >= 13)
      return e.LastQuantized(e.Node("Softmax", {x}, {{"axis", axis}}), 3, 0);
    const std::string rows =
        e.Node("Softmax", {e.Node("Flatten", {x}, {{"axis", axis}})}, {{"axis", -1}});
    e.LastQuantized(e.Node("Reshape", {rows, e.Node("Shape", {x})}, {{"allowzero", 1}}), 3, 0);
  }
  // Scale and zero point of the result, then three inputs for each part.
  static void QLinearConcat(OnnxExpansion& e) {
    std::vector<std::string> parts;
    for (size_t i = 2; i < e.num_inputs(); i += 3) parts.push_back(e.Dequantized(i));
    e.LastQuantized(e.Node("Concat", std::move(parts), e.args()), 0, 2);
  }
  // y = alpha (a' b' + c) a_scale b_scale, where a' b' + c are integers. Quantised if the node has
  // a scale of y.
  static void QGemm(OnnxExpansion& e) {
    if (e.Has(7) != e.Has(8))
      Throw(ErrorCode::kInvalidArgument, "it needs both y_scale and y_zero_point, or neither");
    const auto turned = [&](size_t i, const char* attribute) {
      const bool turns = e.args().Get<int64_t>(attribute, 0) != 0;
      return turns ? e.Node("Transpose", {e.In(i)}, {{"perm", std::vector<int64_t>{1, 0}}})
                   : e.In(i);
    };
    const std::string sums =
        e.Plus(e.Node("MatMulInteger",
                      {turned(0, "transA"), turned(3, "transB"), e.Optional(2), e.Optional(5)}),
               6);
    const std::string floats = e.Node("Cast", {sums}, {{"to", OnnxNumberOf(DType::kFloat32)}});
    std::string factor = e.Node("Mul", {e.In(1), e.In(4)});
    const auto alpha = e.args().Get<float>("alpha", 1.f);
    if (alpha != 1) factor = e.Node("Mul", {factor, e.Number(alpha, factor)});
    if (!e.Has(7)) return e.Last("Mul", {floats, factor});
    e.Last("QuantizeLinear", {e.Node("Mul", {floats, factor}), e.In(7), e.In(8)});
  }

 private:
  // Makes a node of ONNX's operator with the inputs and attributes, as the last node.
  static void SameInOnnx(OnnxExpansion& e, const char* op) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < e.num_inputs(); ++i) inputs.push_back(e.Optional(i));
    e.Last(op, std::move(inputs), e.args());
  }
  static Dim Last(const SymbolicShape& shape) {
    return shape.has_rank() && shape.rank() > 0 ? shape[-1] : Dim();
  }
  // Throws kUnsupported for what GroupQueryAttention does not translate.
  static void RefuseInGroupQueryAttention(const OnnxExpansion& e) {
    const auto refuse = [&](const char* name, int64_t plain) {
      const auto given = e.args().Get<int64_t>(name, plain);
      if (given != plain)
        Throw(ErrorCode::kUnsupported, "its ", name, " is ", given, "; opkit has only ", plain);
    };
    refuse("causal", 1);
    refuse("qk_output", 0);
    refuse("sliding_window_cache", 0);
    for (const char* name : {"k_quant_type", "v_quant_type"})
      if (const auto type = e.args().Get<std::string>(name, "NONE"); type != "NONE")
        Throw(ErrorCode::kUnsupported, "its ", name, " is '", type, "'; opkit has only 'NONE'");
    constexpr std::pair<size_t, const char*> kRefused[] = {{9, "position_ids"},
                                                           {12, "k_scale"},
                                                           {13, "v_scale"},
                                                           {14, "q_norm_weight"},
                                                           {15, "k_norm_weight"}};
    for (const auto& [input, name] : kRefused)
      if (e.Has(input)) Throw(ErrorCode::kUnsupported, "it has input ", input, ", ", name);
    if (e.Has(3) != e.Has(4))
      Throw(ErrorCode::kInvalidArgument, "it needs both past_key and past_value, or neither");
  }
  static std::string AsInt64(OnnxExpansion& e, const std::string& value) {
    return e.Node("Cast", {value}, {{"to", OnnxNumberOf(DType::kInt64)}});
  }
  // Returns queries, keys and values [batch, heads, steps, size] of three inputs, or of one that
  // has them side by side.
  static std::vector<std::string> HeadsOf(OnnxExpansion& e, int64_t heads, int64_t kv_heads) {
    if (e.Has(1) != e.Has(2))
      Throw(ErrorCode::kInvalidArgument, "it needs both key and value, or neither");
    std::vector<std::string> parts;
    if (e.Has(1)) {
      for (size_t i = 0; i < 3; ++i)
        parts.push_back(
            e.Node("Reshape", {e.In(i), e.Ints({0, 0, i == 0 ? heads : kv_heads, -1})}));
    } else {
      const std::string all =
          e.Node("Reshape", {e.In(0), e.Ints({0, 0, heads + 2 * kv_heads, -1})});
      for (const char* what : {"q", "k", "v"})
        parts.push_back(e.scope().FreshName(e.In(0) + "/" + what));
      e.scope().AddNode(
          OperatorDef("Split", {all, e.Ints({heads, kv_heads, kv_heads})}, parts, {{"axis", 2}}));
    }
    for (std::string& part : parts)
      part = e.Node("Transpose", {part}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return parts;
  }
  // Returns the mask [batch, 1, queries, keys] of the keys that queries at these places see: those
  // up to their own place, or the last `window` of them if it is 0 or more. As numbers, the mask is
  // the bias of input 10, or 0, and -infinity.
  static std::string MaskOfCache(OnnxExpansion& e, const std::string& cache,
                                 const std::string& places, int64_t window, bool as_numbers) {
    const std::string zero = e.Int(0), count = e.Extent(cache, 2);
    const std::string keys = e.Node("Range", {zero, count, e.Int(1)});
    const std::string queries = e.Unsqueezed(places, {1, 3});
    std::string mask = e.Node("LessOrEqual", {keys, queries});
    if (window >= 0) {
      const std::string before = e.Node("Sub", {queries, e.Int(window)});
      mask = e.Node("And", {mask, e.Node("Greater", {keys, before})});
    }
    if (!as_numbers) return mask;
    std::string bias = e.Number(0, e.In(0));
    if (e.Has(10))
      bias = Padded(e, e.In(10), zero, e.Node("Sub", {count, e.Extent(e.In(10), 3)}), 3);
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    return e.Node("Where", {mask, bias, e.Number(kNever, e.In(0))});
  }
  // Returns a value with zeros before and behind it along an axis, as many as two scalars say.
  static std::string Padded(OnnxExpansion& e, const std::string& value, const std::string& before,
                            const std::string& behind, int64_t axis) {
    const std::string pads =
        e.Node("Concat", {e.Unsqueezed(before, {0}), e.Unsqueezed(behind, {0})}, {{"axis", 0}});
    return e.Node("Pad", {value, pads, "", e.Ints({axis})});
  }
  // Sets how many elements of a head the angles of a cache rotate, if that is known.
  static void SetRotated(OnnxExpansion& e, const std::string& cache, Arguments& args) {
    const Dim half = Last(e.scope().ProvenInfoOf(cache).shape);
    if (half.is_known()) args.Set("rotary_embedding_dim", 2 * half.value());
  }
  // Makes an activation of y, or nothing if `activation` is empty, as the last node.
  static void Activate(OnnxExpansion& e, const std::string& y, const std::string& activation,
                       const std::vector<float>& params) {
    const auto param = [&](size_t i) {
      if (i < params.size()) return params[i];
      Throw(ErrorCode::kInvalidArgument, "its activation_params are too few for ", activation);
    };
    if (activation.empty()) return e.Last("Identity", {y});
    if (activation == "LeakyRelu") return e.Last(activation, {y}, {{"alpha", param(0)}});
    if (activation == "HardSigmoid")
      return e.Last(activation, {y}, {{"alpha", param(0)}, {"beta", param(1)}});
    if (activation == "Clip")
      return e.Last(activation, {y, e.Number(param(0), e.In(0)), e.Number(param(1), e.In(0))});
    if (activation != "Relu" && activation != "Tanh" && activation != "Sigmoid")
      Throw(ErrorCode::kUnsupported, "its activation is '", activation,
            "', expected Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid or Clip");
    e.Last(activation, {y});
  }
  static Arguments Epsilon(const OnnxExpansion& e) {
    return {{"axis", -1}, {"epsilon", e.args().Get<float>("epsilon", 1e-12f)}};
  }
  // Returns input 0 + input 1 + a bias, which is also output 3.
  static std::string SkipSum(OnnxExpansion& e, size_t bias) {
    const std::string sum = e.Plus(e.Node("Add", {e.In(0), e.In(1)}), bias);
    if (!e.Out(3).empty()) e.Node("Identity", {sum}, {}, e.Out(3));
    return sum;
  }
  // Returns factor i of a product with its matrices transposed, and before that with its first axis
  // moved to the place before the last, as the attributes say.
  static std::string Turned(OnnxExpansion& e, size_t i, const char* moves, const char* turns) {
    const bool is_moved = e.args().Get<int64_t>(moves, 0) != 0;
    const bool is_turned = e.args().Get<int64_t>(turns, 0) != 0;
    if (!is_moved && !is_turned) return e.In(i);
    const SymbolicShape shape = e.scope().ProvenInfoOf(e.In(i)).shape;
    if (!shape.has_rank()) {
      const char* equation = is_moved && is_turned ? "a...b->...ba"
                             : is_moved            ? "a...b->...ab"
                                                   : "...ab->...ba";
      return e.Node("Einsum", {e.In(i)}, {{"equation", equation}});
    }
    // A transposed vector is itself.
    if (shape.rank() < 2) return e.In(i);
    std::vector<int64_t> perm;
    for (int64_t axis = is_moved ? 1 : 0; axis < shape.rank(); ++axis) perm.push_back(axis);
    if (is_moved) perm.insert(perm.end() - 1, 0);
    if (is_turned) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return e.Node("Transpose", {e.In(i)}, {{"perm", perm}});
  }
  static void QLinearBinary(OnnxExpansion& e, const char* op) {
    const std::string a = e.Dequantized(0), b = e.Dequantized(3);
    e.LastQuantized(e.Node(op, {a, b}), 6, 0);
  }
  static void QLinearUnary(OnnxExpansion& e, const char* op) {
    e.LastQuantized(e.Node(op, {e.Dequantized(0)}, e.args()), 3, 0);
  }
  static void QLinearPool(OnnxExpansion& e, const char* op) {
    Arguments args = e.args();
    if (args.Get<int64_t>("channels_last", 0) != 0)
      Throw(ErrorCode::kUnsupported, "its channels are last (channels_last is not 0)");
    args.Remove("channels_last");
    e.LastQuantized(e.Node(op, {e.Dequantized(0)}, std::move(args)), 3, 0);
  }

  // The optional inputs of an attention; "" for one that is left out.
  struct AttentionInputs {
    std::string mask, past, bias;
  };
  // Makes attention of queries, keys and values, which lie side by side in x:
  // softmax(q k^T scale + mask) v for each head.
  static void Attend(OnnxExpansion& e, const std::string& x, const AttentionInputs& given) {
    for (const char* name : {"do_rotary", "past_present_share_buffer"})
      if (e.args().Get<int64_t>(name, 0) != 0)
        Throw(ErrorCode::kUnsupported, "its ", name, " is not 0");
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    auto sizes = e.args().Get<std::vector<int64_t>>("qkv_hidden_sizes", {});
    const SymbolicShape weights = e.scope().ProvenInfoOf(e.In(1)).shape;
    if (sizes.empty()) {
      if (!weights.has_rank() || weights.rank() != 2 || !weights[1].is_known())
        Throw(ErrorCode::kUnsupported, "the shape of its weights must be known, as a matrix");
      sizes.assign(3, weights[1].value() / 3);
    }
    if (heads < 1 || sizes.size() != 3 || sizes[0] < heads || sizes[0] != sizes[1] ||
        sizes[0] % heads != 0 || sizes[2] % heads != 0)
      Throw(ErrorCode::kInvalidArgument, "its ", heads, " heads do not divide queries, keys and ",
            "values of sizes ", sizes);
    std::vector<std::string> parts;
    for (const char* what : {"q", "k", "v"}) parts.push_back(e.scope().FreshName(x + "/" + what));
    e.scope().AddNode(OperatorDef("Split", {x, e.Ints(sizes)}, parts, {{"axis", -1}}));
    for (size_t i = 0; i < 3; ++i) {
      const std::string shape = e.Ints({0, 0, heads, sizes[i] / heads});
      parts[i] = e.Node("Transpose", {e.Node("Reshape", {parts[i], shape})},
                        {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    }
    if (!given.past.empty())
      for (int64_t i = 0; i < 2; ++i)
        parts[Index(i + 1)] =
            e.Node("Concat", {e.Node("Gather", {given.past, e.Int(i)}), parts[Index(i + 1)]},
                   {{"axis", 2}});
    if (!e.Out(1).empty())
      e.Node("Concat", {e.Unsqueezed(parts[1], {0}), e.Unsqueezed(parts[2], {0})}, {{"axis", 0}},
             e.Out(1));
    auto scale = e.args().Get<float>("scale", 0.f);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(sizes[0] / heads));
    const std::string keys =
        e.Node("Transpose", {parts[1]}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    std::string scores = e.Node("Mul", {e.Node("MatMul", {parts[0], keys}), e.Number(scale, x)});
    if (!given.bias.empty()) scores = e.Node("Add", {scores, given.bias});
    if (!given.mask.empty()) {
      const auto low = e.args().Get<float>("mask_filter_value", -10000.f);
      scores = e.Node("Add", {scores, Filtered(e, x, Allowed(e, keys, given.mask), low)});
    }
    if (e.args().Get<int64_t>("unidirectional", 0) != 0)
      scores = e.Node("Add", {scores, Filtered(e, x, Earlier(e, keys), LowestOf(e, x))});
    const std::string out =
        e.Node("MatMul", {e.Node("Softmax", {scores}, {{"axis", -1}}), parts[2]});
    e.Last("Reshape", {e.Node("Transpose", {out}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       e.Ints({0, 0, sizes[2]})});
  }
  static float LowestOf(OnnxExpansion& e, const std::string& x) {
    constexpr float kFloat16 = -65504;
    return e.scope().InfoOf(x).dtype == DType::kFloat16 ? kFloat16
                                                        : -(std::numeric_limits<float>::max)();
  }
  // Returns 0 where a bool is true, else `low`.
  static std::string Filtered(OnnxExpansion& e, const std::string& x, const std::string& allowed,
                              float low) {
    return e.Node("Where", {allowed, e.Number(0, x), e.Number(low, x)});
  }
  // Returns bools, true for the keys that a mask allows, of a shape that can be broadcast to
  // [batch, heads, queries, keys]. The mask has a number for each key [batch, keys], also for each
  // query [batch, queries, keys], or a count of keys [batch]. `keys` is [batch, heads, size, keys].
  static std::string Allowed(OnnxExpansion& e, const std::string& keys, const std::string& mask) {
    const SymbolicShape shape = e.scope().InfoOf(mask).shape;
    const SymbolicShape x = e.scope().InfoOf(e.In(0)).shape;
    const int rank = shape.has_rank() ? shape.rank() : 0;
    if (rank == 2 || rank == 3) {
      const std::string zero = e.Node("Sub", {mask, mask});
      const std::string is_set = e.Node("Greater", {mask, zero});
      return e.Unsqueezed(is_set, rank == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1});
    }
    if (rank != 1 || (x.has_rank() && !Dim::Compatible(shape[0], x[0])))
      Throw(ErrorCode::kUnsupported, "its mask is ", ToString(shape),
            ", expected [batch, keys], [batch, queries, keys] or a count of keys [batch]");
    const std::string places = e.Node("Range", {e.Int(0), e.Extent(keys, 3), e.Int(1)});
    // Reshape refuses other lists, whose length is not known before the run.
    const std::string batch = e.Node("Shape", {e.In(0)}, {{"start", 0}, {"end", 1}});
    const std::string column = e.Node("Concat", {batch, e.Ints({1, 1, 1})}, {{"axis", 0}});
    const std::string counts =
        e.Node("Cast", {e.Node("Reshape", {mask, column})}, {{"to", OnnxNumberOf(DType::kInt64)}});
    return e.Node("Less", {places, counts});
  }
  // Returns bools [queries, keys], true for keys that are not behind the query. The last query
  // stands at the last key.
  static std::string Earlier(OnnxExpansion& e, const std::string& keys) {
    const std::string count = e.Extent(keys, 3), zero = e.Int(0), one = e.Int(1);
    const std::string first = e.Node("Sub", {count, e.Extent(e.In(0), 1)});
    return e.Node("LessOrEqual", {e.Node("Range", {zero, count, one}),
                                  e.Unsqueezed(e.Node("Range", {first, count, one}), {1})});
  }
};

inline const OnnxMicrosoftRules::Row* OnnxMicrosoftRules::Find(const std::string& type) {
  using R = OnnxMicrosoftRules;
  static constexpr Row kRows[] = {
      {"Attention", R::Attention, 2,
       " do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes scale "
       "unidirectional "},
      {"BiasGelu", R::BiasGelu, 1, " "},
      {"DequantizeLinear", R::DequantizeLinear, 1, " axis block_size "},
      {"EmbedLayerNormalization", R::EmbedLayerNormalization, 3, " epsilon mask_index_type "},
      {"FastGelu", R::FastGelu, 1, " "},
      {"FusedConv", R::FusedConv, 1,
       " activation activation_params auto_pad dilations group kernel_shape pads strides "},
      {"FusedGemm", R::FusedGemm, 1,
       " activation activation_alpha activation_beta activation_gamma alpha beta transA transB "},
      {"FusedMatMul", R::FusedMatMul, 1, " alpha transA transB transBatchA transBatchB "},
      {"Gelu", R::Gelu, 1, " "},
      {"GroupQueryAttention", R::GroupQueryAttention, 3,
       " causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads "
       "qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache smooth_softmax "
       "softcap v_quant_type "},
      {"MultiHeadAttention", R::MultiHeadAttention, 3,
       " mask_filter_value num_heads scale unidirectional "},
      {"QAttention", R::QAttention, 2,
       " do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional "},
      {"QGemm", R::QGemm, 1, " alpha transA transB "},
      {"QLinearAdd", R::QLinearAdd, 1, " "},
      {"QLinearAveragePool", R::QLinearAveragePool, 1,
       " auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides "},
      {"QLinearConcat", R::QLinearConcat, 1, " axis "},
      {"QLinearGlobalAveragePool", R::QLinearGlobalAveragePool, 1, " channels_last "},
      {"QLinearLeakyRelu", R::QLinearLeakyRelu, 1, " alpha "},
      {"QLinearMul", R::QLinearMul, 1, " "},
      {"QLinearSigmoid", R::QLinearSigmoid, 1, " "},
      {"QLinearSoftmax", R::QLinearSoftmax, 1, " axis opset "},
      {"QLinearWhere", R::QLinearWhere, 1, " "},
      {"QuantizeLinear", R::QuantizeLinear, 1, " axis block_size "},
      {"QuickGelu", R::QuickGelu, 1, " alpha "},
      {"RotaryEmbedding", R::RotaryEmbedding, 1,
       " interleaved is_packed_batching num_heads rotary_embedding_dim scale "},
      {"SimplifiedLayerNormalization", R::SimplifiedLayerNormalization, 1,
       " axis epsilon stash_type "},
      {"SkipLayerNormalization", R::SkipLayerNormalization, 4, " epsilon "},
      {"SkipSimplifiedLayerNormalization", R::SkipSimplifiedLayerNormalization, 4, " epsilon "},
  };
  for (const Row& row : kRows)
    if (row.type == type) return &row;
  return nullptr;
}

// Rewrites a node of com.microsoft to ONNX's own operators. Returns false, and changes nothing, if
// no rule is for it, if the program registers an operator of this name, or if the options allow
// unknown operators, which a library may run. Throws kUnsupported for what a rule does not
// translate.
inline bool RewriteMicrosoftNode(OnnxScope& scope, OperatorDef& def) {
  const auto* row = OnnxMicrosoftRules::Find(def.type());
  if (!row || scope.context().options.allow_unknown_operators ||
      OpRegistry::Global().FindSchema("com.microsoft." + def.type()))
    return false;
  for (const NamedAttribute& arg : def.args())
    if (row->attributes.find(StrCat(" ", arg.name, " ")) == std::string_view::npos)
      Throw(ErrorCode::kUnsupported, "opkit does not read its attribute '", arg.name, "'");
  for (size_t o = 0; o < def.outputs().size(); ++o)
    if (o >= row->outputs && !def.outputs()[o].empty())
      Throw(ErrorCode::kInvalidArgument, "it has ", row->outputs, " outputs, found ",
            def.outputs().size());
  OnnxExpansion expansion(scope, def);
  row->rule(expansion);
  return true;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_MICROSOFT_RULES_HPP_
