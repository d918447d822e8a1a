// The table of operators that opkit and MXNet (versions 1.8 and 1.9) both have: their names, their
// attributes, and the conditions under which they mean the same. symbol_names.hpp applies it, and
// docs/from-mxnet.md shows it.
#ifndef OPKIT_INTEROP_MXNET_NAMES_TABLE_HPP_
#define OPKIT_INTEROP_MXNET_NAMES_TABLE_HPP_

#include <cstdint>
#include <span>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// How the value of an attribute is converted.
enum class AttributeRule : uint8_t {
  kText,           // the same value, in the other spelling
  kRequired,       // as kText; both operators must have it
  kBool,           // opkit's 1 and 0 are MXNet's True and False
  kPads,           // opkit's [1, 2, 1, 2] is MXNet's (1, 2): both ends of an axis must be equal
  kDtype,          // ONNX's number of a type is MXNet's name of it
  kOdd,            // an odd number
  kKernel,         // the extents of a window, one to three; opkit may leave them to the weights
  kRows,           // MXNet only: extent 0 of the weights
  kGroupColumns,   // MXNet only: extent 1 of the weights times "group"
  kNoBias,         // MXNet only: True with two inputs, False with three
  kNumInputs,      // MXNet only: the number of inputs
  kChannelsFirst,  // MXNet only: None, NCW, NCHW or NCDHW
  kIgnored,        // MXNet only: does not change the result
};

// An attribute of an operator on both sides. An empty default means that an attribute which is left
// out on one side is left out on the other side too.
struct AttributeNames {
  std::string_view opkit = {};  // empty: only MXNet's operator has the attribute
  std::string_view mxnet = {};  // empty: only opkit's operator has the attribute
  AttributeRule rule = AttributeRule::kText;
  // The only value with which the operators mean the same, for an attribute that one side has. For
  // a list, the value of every element.
  std::string_view only = {};
  std::string_view opkit_default = {};  // what a node of opkit without the attribute means
  std::string_view mxnet_default = {};  // what a node of MXNet without the attribute means
};

// A condition on the shapes of a node's values. Shapes must be known except where it says so.
enum class ShapeRule : uint8_t {
  kNone,
  kNotBroadcast,  // all inputs have equal shapes, or a rank is unknown
  kEqual,         // all inputs have equal shapes
  kMatrices,      // both inputs have rank 2
  kBatches,       // both inputs have the same rank, 3 or more, and equal extents but the last two
  kOneSlope,      // the second input has shape [1]
  kLinear,        // the first input has rank 2; a third has one element for each row of the second
  kLastAxis,      // inputs after the first have shape [n], n the last extent of the first
  kEqualParts,    // all outputs have equal shapes
  kNotScalar,     // the first input has an extent other than 1
  kNever,         // the operator is not translated in this direction
};

// An operator on both sides.
struct OperatorNames {
  std::string_view opkit, mxnet;
  size_t min_inputs = 1, max_inputs = 1;
  std::span<const AttributeNames> attributes = {};
  ShapeRule to_mxnet = ShapeRule::kNone;  // condition for translating opkit's operator
  ShapeRule to_opkit = ShapeRule::kNone;  // condition for translating MXNet's operator
};

// Attributes. Names of the arrays are MXNet's operators.
inline constexpr AttributeNames kConvolution[] = {
    {.opkit = "kernel_shape", .mxnet = "kernel", .rule = AttributeRule::kKernel},
    {.opkit = "strides", .mxnet = "stride"},
    {.opkit = "dilations", .mxnet = "dilate"},
    {.opkit = "pads", .mxnet = "pad", .rule = AttributeRule::kPads},
    {.opkit = "group", .mxnet = "num_group", .opkit_default = "1", .mxnet_default = "1"},
    {.mxnet = "num_filter", .rule = AttributeRule::kRows},
    {.mxnet = "no_bias", .rule = AttributeRule::kNoBias, .mxnet_default = "False"},
    {.opkit = "auto_pad", .only = "NOTSET", .opkit_default = "NOTSET"},
    {.mxnet = "workspace", .rule = AttributeRule::kIgnored},
    {.mxnet = "cudnn_tune", .rule = AttributeRule::kIgnored},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kDeconvolution[] = {
    {.opkit = "kernel_shape", .mxnet = "kernel", .rule = AttributeRule::kKernel},
    {.opkit = "strides", .mxnet = "stride"},
    {.opkit = "dilations", .mxnet = "dilate"},
    {.opkit = "pads", .mxnet = "pad", .rule = AttributeRule::kPads},
    {.opkit = "output_padding", .mxnet = "adj"},
    {.opkit = "group", .mxnet = "num_group", .opkit_default = "1", .mxnet_default = "1"},
    {.mxnet = "num_filter", .rule = AttributeRule::kGroupColumns},
    {.mxnet = "no_bias", .rule = AttributeRule::kNoBias, .mxnet_default = "True"},
    {.opkit = "auto_pad", .only = "NOTSET", .opkit_default = "NOTSET"},
    {.mxnet = "workspace", .rule = AttributeRule::kIgnored},
    {.mxnet = "cudnn_tune", .rule = AttributeRule::kIgnored},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kMaxPooling[] = {
    {.mxnet = "global_pool", .only = "False", .mxnet_default = "False"},
    {.mxnet = "pool_type", .only = "max", .mxnet_default = "max"},
    {.opkit = "kernel_shape", .mxnet = "kernel", .rule = AttributeRule::kKernel},
    {.opkit = "strides", .mxnet = "stride"},
    {.opkit = "pads", .mxnet = "pad", .rule = AttributeRule::kPads},
    {.mxnet = "pooling_convention", .only = "valid", .mxnet_default = "valid"},
    {.opkit = "auto_pad", .only = "NOTSET", .opkit_default = "NOTSET"},
    {.opkit = "ceil_mode", .only = "0", .opkit_default = "0"},
    {.opkit = "dilations", .only = "1", .opkit_default = "1"},
    {.opkit = "storage_order", .only = "0", .opkit_default = "0"},
    {.mxnet = "count_include_pad", .rule = AttributeRule::kIgnored},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kAveragePooling[] = {
    {.mxnet = "global_pool", .only = "False", .mxnet_default = "False"},
    {.mxnet = "pool_type", .only = "avg", .mxnet_default = "max"},
    {.opkit = "kernel_shape", .mxnet = "kernel", .rule = AttributeRule::kKernel},
    {.opkit = "strides", .mxnet = "stride"},
    {.opkit = "pads", .mxnet = "pad", .rule = AttributeRule::kPads},
    {.opkit = "count_include_pad",
     .mxnet = "count_include_pad",
     .rule = AttributeRule::kBool,
     .opkit_default = "0",
     .mxnet_default = "True"},
    {.mxnet = "pooling_convention", .only = "valid", .mxnet_default = "valid"},
    {.opkit = "auto_pad", .only = "NOTSET", .opkit_default = "NOTSET"},
    {.opkit = "ceil_mode", .only = "0", .opkit_default = "0"},
    {.opkit = "dilations", .only = "1", .opkit_default = "1"},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kGlobalMaxPooling[] = {
    {.mxnet = "global_pool", .only = "True", .mxnet_default = "False"},
    {.mxnet = "pool_type", .only = "max", .mxnet_default = "max"},
    {.mxnet = "kernel", .rule = AttributeRule::kIgnored},
    {.mxnet = "stride", .rule = AttributeRule::kIgnored},
    {.mxnet = "pad", .rule = AttributeRule::kIgnored},
    {.mxnet = "pooling_convention", .rule = AttributeRule::kIgnored},
    {.mxnet = "count_include_pad", .rule = AttributeRule::kIgnored},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kGlobalAveragePooling[] = {
    {.mxnet = "global_pool", .only = "True", .mxnet_default = "False"},
    {.mxnet = "pool_type", .only = "avg", .mxnet_default = "max"},
    {.mxnet = "kernel", .rule = AttributeRule::kIgnored},
    {.mxnet = "stride", .rule = AttributeRule::kIgnored},
    {.mxnet = "pad", .rule = AttributeRule::kIgnored},
    {.mxnet = "pooling_convention", .rule = AttributeRule::kIgnored},
    {.mxnet = "count_include_pad", .rule = AttributeRule::kIgnored},
    {.mxnet = "layout", .rule = AttributeRule::kChannelsFirst},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kFullyConnected[] = {
    {.mxnet = "num_hidden", .rule = AttributeRule::kRows},
    {.mxnet = "no_bias", .rule = AttributeRule::kNoBias, .mxnet_default = "False"},
    {.mxnet = "flatten", .rule = AttributeRule::kIgnored},
    {.opkit = "transA", .only = "0", .opkit_default = "0"},
    {.opkit = "transB", .only = "1", .opkit_default = "0"},
    {.opkit = "alpha", .only = "1", .opkit_default = "1"},
    {.opkit = "beta", .only = "1", .opkit_default = "1"},
};
inline constexpr AttributeNames kBatchNorm[] = {
    {.opkit = "epsilon", .mxnet = "eps", .opkit_default = "1e-05", .mxnet_default = "0.001"},
    {.opkit = "momentum", .mxnet = "momentum", .opkit_default = "0.9", .mxnet_default = "0.9"},
    {.mxnet = "fix_gamma", .only = "False", .mxnet_default = "True"},
    {.mxnet = "use_global_stats", .only = "True", .mxnet_default = "False"},
    {.mxnet = "output_mean_var", .only = "False", .mxnet_default = "False"},
    {.mxnet = "axis", .only = "1", .mxnet_default = "1"},
    {.opkit = "training_mode", .only = "0", .opkit_default = "0"},
    {.opkit = "spatial", .only = "1", .opkit_default = "1"},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kInstanceNorm[] = {
    {.opkit = "epsilon", .mxnet = "eps", .opkit_default = "1e-05", .mxnet_default = "0.001"},
};
inline constexpr AttributeNames kLayerNorm[] = {
    {.opkit = "epsilon", .mxnet = "eps", .opkit_default = "1e-05", .mxnet_default = "1e-05"},
    {.opkit = "axis", .only = "-1", .opkit_default = "-1"},
    {.mxnet = "axis", .only = "-1", .mxnet_default = "-1"},
    {.mxnet = "output_mean_var", .only = "False", .mxnet_default = "False"},
    {.opkit = "stash_type", .only = "1", .opkit_default = "1"},
};
inline constexpr AttributeNames kLrn[] = {
    {.opkit = "size", .mxnet = "nsize", .rule = AttributeRule::kOdd},
    {.opkit = "alpha", .mxnet = "alpha", .opkit_default = "0.0001", .mxnet_default = "0.0001"},
    {.opkit = "beta", .mxnet = "beta", .opkit_default = "0.75", .mxnet_default = "0.75"},
    {.opkit = "bias", .mxnet = "knorm", .opkit_default = "1", .mxnet_default = "2"},
};
inline constexpr AttributeNames kSoftmax[] = {
    {.opkit = "axis", .mxnet = "axis", .opkit_default = "-1", .mxnet_default = "-1"},
    {.mxnet = "temperature", .only = "None", .mxnet_default = "None"},
    {.mxnet = "dtype", .only = "None", .mxnet_default = "None"},
    {.mxnet = "use_length", .only = "False", .mxnet_default = "False"},
};
inline constexpr AttributeNames kSoftmaxActivation[] = {
    {.opkit = "axis", .only = "1", .opkit_default = "-1"},
    {.mxnet = "mode", .only = "channel", .mxnet_default = "instance"},
};
inline constexpr AttributeNames kActivationRelu[] = {{.mxnet = "act_type", .only = "relu"}};
inline constexpr AttributeNames kActivationSigmoid[] = {{.mxnet = "act_type", .only = "sigmoid"}};
inline constexpr AttributeNames kActivationTanh[] = {{.mxnet = "act_type", .only = "tanh"}};
inline constexpr AttributeNames kActivationSoftrelu[] = {{.mxnet = "act_type", .only = "softrelu"}};
inline constexpr AttributeNames kActivationSoftsign[] = {{.mxnet = "act_type", .only = "softsign"}};
inline constexpr AttributeNames kHardSigmoid[] = {
    {.opkit = "alpha", .mxnet = "alpha", .opkit_default = "0.2", .mxnet_default = "0.2"},
    {.opkit = "beta", .mxnet = "beta", .opkit_default = "0.5", .mxnet_default = "0.5"},
};
inline constexpr AttributeNames kLeakyReluLeaky[] = {
    {.mxnet = "act_type", .only = "leaky", .mxnet_default = "leaky"},
    {.opkit = "alpha", .mxnet = "slope", .opkit_default = "0.01", .mxnet_default = "0.25"},
};
inline constexpr AttributeNames kLeakyReluElu[] = {
    {.mxnet = "act_type", .only = "elu", .mxnet_default = "leaky"},
    {.opkit = "alpha", .mxnet = "slope", .opkit_default = "1", .mxnet_default = "0.25"},
};
inline constexpr AttributeNames kLeakyReluPrelu[] = {
    {.mxnet = "act_type", .only = "prelu", .mxnet_default = "leaky"},
    {.mxnet = "slope", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kLeakyReluSelu[] = {
    {.mxnet = "act_type", .only = "selu", .mxnet_default = "leaky"},
    {.mxnet = "slope", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kLeakyReluGelu[] = {
    {.mxnet = "act_type", .only = "gelu", .mxnet_default = "leaky"},
    {.mxnet = "slope", .rule = AttributeRule::kIgnored},
    {.opkit = "approximate", .only = "none", .opkit_default = "none"},
};
inline constexpr AttributeNames kConcat[] = {
    {.opkit = "axis", .mxnet = "dim", .rule = AttributeRule::kRequired, .mxnet_default = "1"},
    {.mxnet = "num_args", .rule = AttributeRule::kNumInputs},
};
inline constexpr AttributeNames kAddN[] = {
    {.mxnet = "num_args", .rule = AttributeRule::kNumInputs},
};
inline constexpr AttributeNames kSliceChannel[] = {
    {.opkit = "axis", .mxnet = "axis", .opkit_default = "0", .mxnet_default = "1"},
    {.opkit = "num_outputs", .mxnet = "num_outputs", .rule = AttributeRule::kRequired},
    {.mxnet = "squeeze_axis", .only = "False", .mxnet_default = "False"},
};
inline constexpr AttributeNames kFlatten[] = {
    {.opkit = "axis", .only = "1", .opkit_default = "1"},
};
inline constexpr AttributeNames kTranspose[] = {{.opkit = "perm", .mxnet = "axes"}};
inline constexpr AttributeNames kSqueeze[] = {
    {.mxnet = "axis", .only = "None", .mxnet_default = "None"},
};
inline constexpr AttributeNames kDot[] = {
    {.mxnet = "transpose_a", .only = "False", .mxnet_default = "False"},
    {.mxnet = "transpose_b", .only = "False", .mxnet_default = "False"},
    {.mxnet = "forward_stype", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kCast[] = {
    {.opkit = "to", .mxnet = "dtype", .rule = AttributeRule::kDtype},
    {.opkit = "saturate", .only = "1", .opkit_default = "1"},
};
inline constexpr AttributeNames kTake[] = {
    {.opkit = "axis", .mxnet = "axis", .opkit_default = "0", .mxnet_default = "0"},
    {.mxnet = "mode", .only = "wrap", .mxnet_default = "clip"},
};
inline constexpr AttributeNames kReduce[] = {
    {.mxnet = "axis", .only = "None", .mxnet_default = "None"},
    {.opkit = "keepdims", .only = "1", .opkit_default = "1"},
    {.mxnet = "keepdims", .only = "True", .mxnet_default = "False"},
    {.mxnet = "exclude", .only = "False", .mxnet_default = "False"},
    {.opkit = "noop_with_empty_axes", .only = "0", .opkit_default = "0"},
};
inline constexpr AttributeNames kNormL1[] = {
    {.mxnet = "ord", .only = "1", .mxnet_default = "2"},
    {.mxnet = "axis", .only = "None", .mxnet_default = "None"},
    {.mxnet = "out_dtype", .only = "None", .mxnet_default = "None"},
    {.opkit = "keepdims", .only = "1", .opkit_default = "1"},
    {.mxnet = "keepdims", .only = "True", .mxnet_default = "False"},
    {.opkit = "noop_with_empty_axes", .only = "0", .opkit_default = "0"},
};
inline constexpr AttributeNames kNormL2[] = {
    {.mxnet = "ord", .only = "2", .mxnet_default = "2"},
    {.mxnet = "axis", .only = "None", .mxnet_default = "None"},
    {.mxnet = "out_dtype", .only = "None", .mxnet_default = "None"},
    {.opkit = "keepdims", .only = "1", .opkit_default = "1"},
    {.mxnet = "keepdims", .only = "True", .mxnet_default = "False"},
    {.opkit = "noop_with_empty_axes", .only = "0", .opkit_default = "0"},
};
inline constexpr AttributeNames kDepthToSpace[] = {
    {.opkit = "blocksize", .mxnet = "block_size", .rule = AttributeRule::kRequired},
    {.opkit = "mode", .only = "DCR", .opkit_default = "DCR"},
};
inline constexpr AttributeNames kSpaceToDepth[] = {
    {.opkit = "blocksize", .mxnet = "block_size", .rule = AttributeRule::kRequired},
};
inline constexpr AttributeNames kDropout[] = {
    {.mxnet = "p", .only = "0.5", .mxnet_default = "0.5"},
    {.mxnet = "mode", .only = "training", .mxnet_default = "training"},
    {.mxnet = "axes", .only = "None", .mxnet_default = "None"},
    {.mxnet = "cudnn_off", .rule = AttributeRule::kIgnored},
};
inline constexpr AttributeNames kShapeArray[] = {
    {.opkit = "start", .only = "0", .opkit_default = "0"},
};

// The operators. An operator that fits several rows is translated by the first. A row belongs here
// only if both operators give the same values, types and shapes under its conditions. The test of
// this header prints the table of docs/from-mxnet.md that a new row needs.
//
// Operators that are not here differ in more than names. For example, MXNet's round rounds halves
// away from zero, its comparisons do not return bools, and Reshape, Clip, Slice, Pad, Tile and
// Unsqueeze of ONNX have as an input what MXNet has as an attribute.
inline constexpr OperatorNames kOperatorNames[] = {
    // Arithmetic. broadcast_add adds inputs of all shapes, elemwise_add only of equal ones.
    {"Add", "elemwise_add", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Add", "broadcast_add", 2, 2},
    {"Sub", "elemwise_sub", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Sub", "broadcast_sub", 2, 2},
    {"Mul", "elemwise_mul", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Mul", "broadcast_mul", 2, 2},
    {"Div", "elemwise_div", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Div", "broadcast_div", 2, 2},
    {"Pow", "_power", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Pow", "broadcast_power", 2, 2},
    {"Max", "_maximum", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Max", "broadcast_maximum", 2, 2},
    {"Min", "_minimum", 2, 2, {}, ShapeRule::kNotBroadcast},
    {"Min", "broadcast_minimum", 2, 2},
    {"Sum", "add_n", 1, SIZE_MAX, kAddN, ShapeRule::kEqual},
    {"MatMul", "dot", 2, 2, kDot, ShapeRule::kMatrices, ShapeRule::kMatrices},
    {"MatMul", "batch_dot", 2, 2, kDot, ShapeRule::kBatches},

    // Functions of one element.
    {"Abs", "abs"},
    {"Acos", "arccos"},
    {"Acosh", "arccosh"},
    {"Asin", "arcsin"},
    {"Asinh", "arcsinh"},
    {"Atan", "arctan"},
    {"Atanh", "arctanh"},
    {"Ceil", "ceil"},
    {"Cos", "cos"},
    {"Cosh", "cosh"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Floor", "floor"},
    {"Log", "log"},
    {"Neg", "negative"},
    {"Reciprocal", "reciprocal"},
    {"Sign", "sign"},
    {"Sin", "sin"},
    {"Sinh", "sinh"},
    {"Sqrt", "sqrt"},
    {"Tan", "tan"},
    {"Identity", "_copy"},
    {"Cast", "Cast", 1, 1, kCast},
    {"Where", "where", 3, 3, {}, ShapeRule::kEqual, ShapeRule::kNever},  // MXNet: any condition

    // Activations.
    {"Relu", "relu"},
    {"Relu", "Activation", 1, 1, kActivationRelu},
    {"Sigmoid", "sigmoid"},
    {"Sigmoid", "Activation", 1, 1, kActivationSigmoid},
    {"Tanh", "tanh"},
    {"Tanh", "Activation", 1, 1, kActivationTanh},
    {"Softplus", "Activation", 1, 1, kActivationSoftrelu},
    {"Softsign", "softsign"},
    {"Softsign", "Activation", 1, 1, kActivationSoftsign},
    {"HardSigmoid", "hard_sigmoid", 1, 1, kHardSigmoid},
    {"LeakyRelu", "LeakyReLU", 1, 1, kLeakyReluLeaky},
    {"Elu", "LeakyReLU", 1, 1, kLeakyReluElu},
    {"PRelu", "LeakyReLU", 2, 2, kLeakyReluPrelu, ShapeRule::kOneSlope, ShapeRule::kOneSlope},
    {"Selu", "LeakyReLU", 1, 1, kLeakyReluSelu},
    {"Gelu", "LeakyReLU", 1, 1, kLeakyReluGelu},
    {"Softmax", "softmax", 1, 1, kSoftmax},
    {"Softmax", "SoftmaxActivation", 1, 1, kSoftmaxActivation},
    {"LogSoftmax", "log_softmax", 1, 1, kSoftmax},

    // Layers.
    {"Conv", "Convolution", 2, 3, kConvolution},
    {"ConvTranspose", "Deconvolution", 2, 3, kDeconvolution},
    {"MaxPool", "Pooling", 1, 1, kMaxPooling},
    {"AveragePool", "Pooling", 1, 1, kAveragePooling},
    {"GlobalMaxPool", "Pooling", 1, 1, kGlobalMaxPooling},
    {"GlobalAveragePool", "Pooling", 1, 1, kGlobalAveragePooling},
    {"Gemm", "FullyConnected", 2, 3, kFullyConnected, ShapeRule::kLinear, ShapeRule::kLinear},
    {"BatchNormalization", "BatchNorm", 5, 5, kBatchNorm},
    {"InstanceNormalization", "InstanceNorm", 3, 3, kInstanceNorm},
    {"LayerNormalization", "LayerNorm", 3, 3, kLayerNorm, ShapeRule::kLastAxis},
    {"LRN", "LRN", 1, 1, kLrn},
    {"Dropout", "Dropout", 1, 1, kDropout},

    // Shapes and elements.
    {"Concat", "Concat", 1, SIZE_MAX, kConcat},
    {"Split", "SliceChannel", 1, 1, kSliceChannel, ShapeRule::kEqualParts},
    {"Flatten", "Flatten", 1, 1, kFlatten},
    {"Transpose", "transpose", 1, 1, kTranspose},
    {"Squeeze", "squeeze", 1, 1, kSqueeze, ShapeRule::kNotScalar, ShapeRule::kNotScalar},
    {"Gather", "take", 2, 2, kTake},
    {"DepthToSpace", "depth_to_space", 1, 1, kDepthToSpace},
    {"SpaceToDepth", "space_to_depth", 1, 1, kSpaceToDepth},
    {"Shape", "shape_array", 1, 1, kShapeArray},

    // Reductions of all axes to extent 1.
    {"ReduceSum", "sum", 1, 1, kReduce},
    {"ReduceMean", "mean", 1, 1, kReduce},
    {"ReduceMax", "max", 1, 1, kReduce},
    {"ReduceMin", "min", 1, 1, kReduce},
    {"ReduceProd", "prod", 1, 1, kReduce},
    {"ReduceL1", "norm", 1, 1, kNormL1},
    {"ReduceL2", "norm", 1, 1, kNormL2},
};

// Other names that MXNet has for operators of the table.
struct OperatorAlias {
  std::string_view alias, name;
};
inline constexpr OperatorAlias kOperatorAliases[] = {
    {"_add", "elemwise_add"},   {"_plus", "elemwise_add"},
    {"_Plus", "elemwise_add"},  {"broadcast_plus", "broadcast_add"},
    {"_sub", "elemwise_sub"},   {"_minus", "elemwise_sub"},
    {"_Minus", "elemwise_sub"}, {"broadcast_minus", "broadcast_sub"},
    {"_mul", "elemwise_mul"},   {"_Mul", "elemwise_mul"},
    {"_div", "elemwise_div"},   {"_Div", "elemwise_div"},
    {"_Power", "_power"},       {"_Maximum", "_maximum"},
    {"_Minimum", "_minimum"},   {"ElementWiseSum", "add_n"},
    {"identity", "_copy"},      {"cast", "Cast"},
    {"concat", "Concat"},       {"split", "SliceChannel"},
    {"flatten", "Flatten"},     {"sum_axis", "sum"},
    {"max_axis", "max"},        {"min_axis", "min"},
};

// Operators of opkit whose names MXNet gives to other operators, or to operators with other
// attributes. Where the table does not translate such an operator, its name gets this prefix.
inline constexpr std::string_view kOpkitPrefix = "ai.onnx.";
// A node of MXNet with such a name that the table does not translate gets the other prefix.
inline constexpr std::string_view kMxnetPrefix = "mxnet.";
inline constexpr std::string_view kNamesOfBoth[] = {
    "Cast", "Concat", "Dropout", "Flatten", "LRN", "Pad", "RNN", "Reshape", "Softmax",
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_NAMES_TABLE_HPP_
