// The ONNX opsets that opkit reads. Nodes are taken unchanged, rewritten to the form of opset 21,
// which opkit's operators have, or refused with an Error. Source: the since_version of every
// operator's schema in ONNX 1.23, compared by attributes, inputs, outputs and documentation.
#ifndef OPKIT_INTEROP_ONNX_OPSET_HPP_
#define OPKIT_INTEROP_ONNX_OPSET_HPP_

#include "opkit/interop/onnx/opset_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr int64_t kMinOnnxOpset = 7;
inline constexpr int64_t kMaxOnnxOpset = 28;

namespace detail {

// True if the operator is among `types`. Each name in `types` has a blank before and behind it.
inline bool IsAmong(std::string_view types, const std::string& type) {
  return types.find(" " + type + " ") != std::string_view::npos;
}

// A rule for the nodes of some operators.
struct OnnxRewrite {
  std::string_view types;  // as IsAmong takes them
  int64_t below;           // the rule is for nodes of opsets below this
  OnnxRule rule;
};
// Rules apply in this order. If a rule changes the type of a node, later rules for the new type
// apply.
inline constexpr OnnxRewrite kOnnxRewrites[] = {
    {" BatchNormalization ", 14, OnnxRules::BatchNormalization},
    {" BatchNormalization ", kMaxOnnxOpset + 1, OnnxRules::BatchNormalizationSpatial},
    {" Clip ", 11, OnnxRules::Clip},
    {" DFT ", 20, OnnxRules::Dft},
    {" Dropout ", 12, OnnxRules::Dropout},
    {" GridSample ", 20, OnnxRules::GridSample},
    {" GroupNormalization ", 21, OnnxRules::GroupNormalization},
    {" Hardmax LogSoftmax Softmax ", 13, OnnxRules::Softmax},
    {" Pad ", 11, OnnxRules::Pad},
    {" ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
     "ReduceSumSquare ",
     18, OnnxRules::MoveAxes},
    {" ReduceSum Squeeze Unsqueeze ", 13, OnnxRules::MoveAxes},
    {" Resize ", 11, OnnxRules::Resize10},
    {" Resize ", 13, OnnxRules::Resize11},
    {" Resize ", kMaxOnnxOpset + 1, OnnxRules::Resize},
    {" RoiAlign ", 16, OnnxRules::RoiAlign},
    {" Scan ", 9, OnnxRules::Scan},
    {" Scatter ", 11, OnnxRules::Scatter},
    {" Slice ", 10, OnnxRules::Slice},
    {" Split ", 18, OnnxRules::Split},
    {" TopK ", 10, OnnxRules::TopK},
    {" Upsample ", 10, OnnxRules::Upsample},
};

// An integer attribute that an operator got after opset 21, and that opkit's operator lacks. With
// the harmless values the node means the same as in opset 21.
struct OnnxAddition {
  const char* type;
  const char* attribute;
  int64_t harmless[2];
};
inline constexpr OnnxAddition kOnnxAdditions[] = {
    {"QuantizeLinear", "precision", {0, 1}},  // since opset 23: opkit divides in float32, 1
    {"Range", "stash_type", {1, 1}},          // since opset 27: float32 steps for float16
};

// Operators whose nodes of opset `since` to 6 are read, too: they have the form of opset 7, or a
// rule above rewrites their older form.
struct OnnxUnchanged {
  int64_t since;
  std::string_view types;  // as IsAmong takes them
};
inline constexpr OnnxUnchanged kOnnxUnchanged[] = {
    {1,
     " ArgMax Constant Conv ConvTranspose DepthToSpace Dropout Flatten Gather GlobalAveragePool "
     "GlobalMaxPool Hardmax Identity If LRN LogSoftmax LpNormalization MatMul MaxPool "
     "MaxRoiPool Not RandomNormal RandomNormalLike RandomUniform RandomUniformLike ReduceL1 "
     "ReduceL2 ReduceLogSum ReduceLogSumExp "
     "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Shape Size Slice Softmax "
     "Softplus Softsign SpaceToDepth Squeeze TopK Transpose Unsqueeze "},
    {2, " GlobalLpPool Pad Split "},
    {4, " Concat "},
    {5, " Reshape "},
    {6,
     " Abs Cast Ceil Clip Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean "
     "Min Neg Reciprocal Relu Selu Sigmoid Sqrt Sum Tanh Tile "},
};

// Throws kUnsupported unless opkit reads models of this opset.
inline void CheckOnnxOpset(int64_t opset) {
  if (opset < 1 || opset > kMaxOnnxOpset)
    Throw(ErrorCode::kUnsupported, "opset ", opset,
          " of ONNX is not one of those that opkit reads, ", kMinOnnxOpset, " to ", kMaxOnnxOpset,
          "; convert the model with onnx.version_converter");
}
// Checks the opset of a node. Throws kInvalidArgument if the opset is missing (0), kUnsupported if
// opkit does not read operators of this type and opset.
inline void CheckOnnxOpset(const std::string& type, int64_t opset) {
  if (opset == 0)
    Throw(ErrorCode::kInvalidArgument,
          "the model gives no version of ONNX's operators (opset_import)");
  CheckOnnxOpset(opset);
  if (opset >= kMinOnnxOpset) return;
  for (const OnnxUnchanged& unchanged : kOnnxUnchanged)
    if (opset >= unchanged.since && IsAmong(unchanged.types, type)) return;
  Throw(
      ErrorCode::kUnsupported, "operator ", type, " of opset ", opset,
      " is too old: opkit reads opsets ", kMinOnnxOpset, " to ", kMaxOnnxOpset,
      ", and from older ones the operators that have not changed until opset 7; convert the model "
      "with onnx.version_converter");
}

// Rewrites a node of ONNX's own domain to opset 21. Throws kUnsupported if that is not possible.
inline void RewriteOnnxNode(OnnxScope& scope, OperatorDef& def, int64_t opset) {
  CheckOnnxOpset(def.type(), opset);
  for (const OnnxRewrite& rewrite : kOnnxRewrites)
    if (opset < rewrite.below && IsAmong(rewrite.types, def.type()))
      rewrite.rule(scope, def, opset);
  if (opset <= 21) return;
  for (const OnnxAddition& addition : kOnnxAdditions) {
    if (def.type() != addition.type) continue;
    const Attribute* attribute = def.args().Find(addition.attribute);
    if (!attribute) continue;
    const auto& harmless = addition.harmless;
    if ((!attribute->Is<int64_t>() ||
         std::find(harmless, harmless + 2, attribute->Get<int64_t>()) == harmless + 2) &&
        !scope.context().options.allow_unknown_operators)
      Throw(ErrorCode::kUnsupported, "operator ", def.type(), " of opset ", opset,
            " has the attribute '", addition.attribute,
            "', which opkit's operators lack: they are those of opset 21");
    def.mutable_args().Remove(addition.attribute);
  }
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_OPSET_HPP_
