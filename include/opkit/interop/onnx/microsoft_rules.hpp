// The rules that rewrite operators of ONNX Runtime's domain, com.microsoft, to ONNX's own; those of
// attention are in microsoft_attention.hpp. Files that ONNX Runtime's tools have optimised or
// quantised contain such operators. Every backend's kernels and all passes then serve these models.
// Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_INTEROP_ONNX_MICROSOFT_RULES_HPP_
#define OPKIT_INTEROP_ONNX_MICROSOFT_RULES_HPP_

#include "opkit/interop/onnx/microsoft_attention.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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

  // Distances of rows: |a - b|^2 = |a|^2 + |b|^2 - 2ab, which rounding may make less than 0.
  static void CDist(OnnxExpansion& e) {
    const auto metric = e.args().Get<std::string>("metric", "sqeuclidean");
    if (metric != "euclidean" && metric != "sqeuclidean")
      Throw(ErrorCode::kUnsupported, "its metric is '", metric,
            "', expected euclidean or sqeuclidean");
    const std::string axis = e.Ints({1});
    const std::string a = e.Node("ReduceSumSquare", {e.In(0), axis});
    const std::string b = e.Node("ReduceSumSquare", {e.In(1), axis}, {{"keepdims", 0}});
    const std::string sum =
        e.Node("Add", {e.Node("Gemm", {e.In(0), e.In(1), b}, {{"alpha", -2.f}, {"transB", 1}}), a});
    if (metric == "sqeuclidean") return e.Last("Relu", {sum});
    e.Last("Sqrt", {e.Node("Relu", {sum})});
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

  static void QuantizeLinear(OnnxExpansion& e) { SameInOnnx(e, "QuantizeLinear"); }
  static void DequantizeLinear(OnnxExpansion& e) { SameInOnnx(e, "DequantizeLinear"); }

  static void QLinearWhere(OnnxExpansion& e) {
    const std::string a = e.Dequantized(1), b = e.Dequantized(4);
    e.LastQuantized(e.Node("Where", {e.In(0), a, b}), 7, 1);
  }
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
};

inline const OnnxMicrosoftRules::Row* OnnxMicrosoftRules::Find(const std::string& type) {
  using R = OnnxMicrosoftRules;
  using A = OnnxAttentionRules;
  static constexpr Row kRows[] = {
      {"Attention", A::Attention, 2,
       " do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes scale "
       "unidirectional "},
      {"BiasGelu", R::BiasGelu, 1, " "},
      {"CDist", R::CDist, 1, " metric "},
      {"DequantizeLinear", R::DequantizeLinear, 1, " axis block_size "},
      {"EmbedLayerNormalization", R::EmbedLayerNormalization, 3, " epsilon mask_index_type "},
      {"FastGelu", R::FastGelu, 1, " "},
      {"FusedConv", R::FusedConv, 1,
       " activation activation_params auto_pad dilations group kernel_shape pads strides "},
      {"FusedGemm", R::FusedGemm, 1,
       " activation activation_alpha activation_beta activation_gamma alpha beta transA transB "},
      {"FusedMatMul", R::FusedMatMul, 1, " alpha transA transB transBatchA transBatchB "},
      {"Gelu", R::Gelu, 1, " "},
      {"GroupQueryAttention", A::GroupQueryAttention, 3,
       " causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads "
       "qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache smooth_softmax "
       "softcap v_quant_type "},
      {"MultiHeadAttention", A::MultiHeadAttention, 3,
       " mask_filter_value num_heads scale unidirectional "},
      {"QAttention", A::QAttention, 2,
       " do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional "},
      {"QGemm", R::QGemm, 1, " alpha transA transB "},
      {"QLinearAveragePool", R::QLinearAveragePool, 1,
       " auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides "},
      {"QLinearConcat", R::QLinearConcat, 1, " axis "},
      {"QLinearGlobalAveragePool", R::QLinearGlobalAveragePool, 1, " channels_last "},
      {"QLinearLeakyRelu", R::QLinearLeakyRelu, 1, " alpha "},
      {"QLinearSigmoid", R::QLinearSigmoid, 1, " "},
      {"QLinearSoftmax", R::QLinearSoftmax, 1, " axis opset "},
      {"QLinearWhere", R::QLinearWhere, 1, " "},
      {"QuantizeLinear", R::QuantizeLinear, 1, " axis block_size "},
      {"QuickGelu", R::QuickGelu, 1, " alpha "},
      {"RotaryEmbedding", A::RotaryEmbedding, 1,
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
