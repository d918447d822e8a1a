// The rules that rewrite nodes of older ONNX opsets to opset 21, the opset of opkit's operators.
// Most of them turn attributes into inputs. Source: the operators' histories in
// https://onnx.ai/onnx/operators.
#ifndef OPKIT_INTEROP_ONNX_OPSET_RULES_HPP_
#define OPKIT_INTEROP_ONNX_OPSET_RULES_HPP_

#include <limits>

#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx/scope.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A rule. Changes `def`, a node of `opset`, and adds the nodes that must run before it to the
// graph.
using OnnxRule = void (*)(OnnxScope& scope, OperatorDef& def, int64_t opset);

// The rules, each named after its operator or its change.
class OnnxRules {
 public:
  // Moves the attribute `axes` to input 1.
  static void MoveAxes(OnnxScope& scope, OperatorDef& def, int64_t) {
    MoveInts(scope, def, "axes", 1);
  }
  static void Slice(OnnxScope& scope, OperatorDef& def, int64_t) {
    for (const char* name : {"starts", "ends"})
      if (!def.args().Has(name))
        Throw(ErrorCode::kInvalidArgument, "it needs the attribute '", name, "'");
    MoveInts(scope, def, "starts", 1);
    MoveInts(scope, def, "ends", 2);
    MoveInts(scope, def, "axes", 3);
  }
  static void Split(OnnxScope& scope, OperatorDef& def, int64_t opset) {
    if (opset < 13) MoveInts(scope, def, "split", 1);
    if (Input(def, 1).empty()) def.Arg("num_outputs", static_cast<int64_t>(def.outputs().size()));
  }
  static void TopK(OnnxScope& scope, OperatorDef& def, int64_t) {
    const auto k = def.args().Get<int64_t>("k", -1);
    if (k < 0) Throw(ErrorCode::kInvalidArgument, "it needs the attribute 'k', 0 or more");
    SetInput(def, 1, scope.AddConstant(def, "k", Tensor::From<int64_t>({1}, {k})));
    def.mutable_args().Remove("k");
  }
  // Moves the bounds to inputs. A missing bound meant the largest finite float32, so that
  // infinities were clipped.
  static void Clip(OnnxScope& scope, OperatorDef& def, int64_t) {
    constexpr float kMost = (std::numeric_limits<float>::max)();
    if (!def.args().Has("min")) def.Arg("min", -kMost);
    if (!def.args().Has("max")) def.Arg("max", kMost);
    MoveScalar(scope, def, "min", 1);
    MoveScalar(scope, def, "max", 2);
  }
  static void Pad(OnnxScope& scope, OperatorDef& def, int64_t) {
    MoveInts(scope, def, "pads", 1);
    MoveScalar(scope, def, "value", 2);
  }
  // Makes a Dropout for inference, which drops no element. Before opset 7, `is_test` = 0 meant
  // training. Before opset 10 the mask had the type of the data. The old opsets do not define the
  // mask for inference; here it is the mask of opset 12, in which all elements are kept.
  static void Dropout(OnnxScope& scope, OperatorDef& def, int64_t opset) {
    def.mutable_args().Remove("ratio");
    if (opset < 7) {
      if (def.args().Get<int64_t>("is_test", 0) == 0)
        Throw(ErrorCode::kUnsupported,
              "its is_test is 0, so that it trains; export the model for inference");
      def.mutable_args().Remove("is_test");
      def.mutable_args().Remove("consumed_inputs");
    }
    auto& outputs = def.mutable_outputs();
    if (outputs.size() != 2) return;
    if (!scope.IsRead(outputs[1])) {
      outputs.resize(1);
      return;
    }
    if (opset < 7)
      Throw(ErrorCode::kUnsupported, "its output '", outputs[1],
            "' is not filled where is_test is not 0, and is read");
    if (opset >= 10) return;
    DType dtype = scope.InfoOf(Input(def, 0)).dtype;
    if (dtype == DType::kUndefined) dtype = scope.InfoOf(outputs[1]).dtype;
    const std::string kept = scope.FreshName(def, "kept");
    OperatorDef cast("Cast", {kept}, {outputs[1]}, {{"to", KnownNumberOf(dtype)}});
    outputs[1] = kept;
    scope.AddNode(std::exchange(def, std::move(cast)));
  }

  // Removes the outputs of training. Throws kUnsupported if one of them is read.
  static void BatchNormalization(OnnxScope& scope, OperatorDef& def, int64_t) {
    auto& outputs = def.mutable_outputs();
    for (size_t i = 1; i < outputs.size(); ++i)
      if (scope.IsRead(outputs[i]))
        Throw(ErrorCode::kUnsupported, "its output '", outputs[i],
              "' is one of training, and is read; export the model for inference");
    if (outputs.size() > 1) outputs.resize(1);
  }
  // Throws kUnsupported for `spatial` = 0 from opset 9 on, in which ONNX removed it. opkit's
  // operator still has the attribute.
  static void BatchNormalizationSpatial(OnnxScope&, OperatorDef& def, int64_t opset) {
    if (def.args().Get<int64_t>("spatial", 1) != 0)
      def.mutable_args().Remove("spatial");
    else if (opset >= 9)
      Throw(ErrorCode::kUnsupported,
            "statistics for every activation (spatial = 0) were dropped from ONNX in opset 9");
  }

  // Before opset 13, Softmax, LogSoftmax and Hardmax treated all axes from `axis` on as one axis.
  // The result is the same for the last axis, or if all extents behind `axis` are 1. Otherwise
  // reshapes the input to a matrix and the result back.
  static void Softmax(OnnxScope& scope, OperatorDef& def, int64_t) {
    const auto axis = def.args().Get<int64_t>("axis", 1);
    def.Arg("axis", axis);
    if (axis == -1) return;
    const SymbolicShape shape = scope.ProvenInfoOf(Input(def, 0)).shape;
    if (shape.has_rank()) {
      const int64_t rank = shape.rank(), first = axis < 0 ? axis + rank : axis;
      bool same = first >= 0 && first < rank;
      for (int64_t i = first + 1; same && i < rank; ++i)
        same = shape[static_cast<int>(i)] == Dim(1);
      if (same) return;
    }
    const std::string extents = scope.FreshName(def, "shape");
    const std::string matrix = scope.FreshName(def, "matrix");
    const std::string result = scope.FreshName(def, "result");
    scope.AddNode(OperatorDef("Shape", {Input(def, 0)}, {extents}));
    scope.AddNode(OperatorDef("Flatten", {Input(def, 0)}, {matrix}, {{"axis", axis}}));
    scope.AddNode(OperatorDef(def.type(), {matrix}, {result}, {{"axis", 1}}).Name(def.name()));
    OperatorDef back("Reshape", {result, extents}, def.outputs(), {{"allowzero", 1}});
    def = std::move(back);
  }

  // Opset 10 had two inputs and fixed modes, which are attributes now. ONNX does not define how
  // opset 10 rounds to the nearest; `simple` is the rule of ONNX Runtime.
  static void Resize10(OnnxScope&, OperatorDef& def, int64_t) {
    const std::string x = Input(def, 0), scales = Input(def, 1);
    def.mutable_inputs() = {x, "", scales};
    def.Arg("coordinate_transformation_mode", "asymmetric");
    def.Arg("nearest_mode", "simple");
  }
  static void Upsample(OnnxScope& scope, OperatorDef& def, int64_t opset) {
    if (opset < 9) {
      const auto scales = def.args().Get<std::vector<float>>("scales", {});
      const auto count = static_cast<int64_t>(scales.size());
      SetInput(def, 1, scope.AddConstant(def, "scales", Tensor::From<float>({count}, scales)));
      def.mutable_args().Remove("scales");
    }
    def.Type("Resize");
    Resize10(scope, def, opset);
  }
  // In opset 11 all inputs were required, empty if unused; `scales` was unused if `sizes` was
  // given.
  static void Resize11(OnnxScope&, OperatorDef& def, int64_t) {
    if (!Input(def, 3).empty()) SetInput(def, 2, "");
  }
  // Removes inputs that are empty constants, which mean the same as no input in any opset.
  static void Resize(OnnxScope& scope, OperatorDef& def, int64_t opset) {
    if (opset > 10 && def.args().Get<std::string>("nearest_mode", "") == "simple")
      Throw(ErrorCode::kInvalidArgument, "ONNX has no nearest_mode 'simple'");
    const std::string mode =
        def.args().Get<std::string>("coordinate_transformation_mode", "half_pixel");
    if (mode != "tf_crop_and_resize" && !Input(def, 1).empty()) SetInput(def, 1, "");
    for (std::string& name : def.mutable_inputs())
      if (const Tensor* constant = scope.graph().FindConstant(name))
        if (constant->numel() == 0 && &name != &def.inputs()[0]) {
          scope.UseConstant(name);
          name.clear();
        }
  }

  static void Scatter(OnnxScope&, OperatorDef& def, int64_t) { def.Type("ScatterElements"); }

  // Opset 8 had a batch axis before all others. The node becomes a Scan over the batch, whose body
  // is the Scan of one element.
  static void Scan(OnnxScope&, OperatorDef& def, int64_t) {
    const Graph* const body = SubgraphOf(def, "body");
    if (!Input(def, 0).empty())
      Throw(ErrorCode::kUnsupported,
            "its input 'sequence_lens' gives each element of the batch another length; export the "
            "model with opset 9 or later");
    if (!body || def.inputs().empty()) return;
    std::vector<std::string>& inputs = def.mutable_inputs();
    inputs.erase(inputs.begin());
    const auto captures = def.args().Get<std::vector<std::string>>("captures", {});
    OperatorDef one("Scan");
    Graph batch;
    const size_t own = inputs.size() - captures.size();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = i < own ? StrCat("element of input ", i) : captures[i - own];
      batch.AddInput(name, DType::kUndefined, {});
      one.Input(name);
    }
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      one.Output(StrCat("element of output ", o));
      batch.AddOutput(StrCat("element of output ", o));
    }
    one.Arg("num_scan_inputs", def.args().Get<int64_t>("num_scan_inputs", 0));
    if (def.args().Has("directions"))
      one.Arg("scan_input_directions", def.args().Get<std::vector<int64_t>>("directions"));
    if (!captures.empty()) one.Arg("captures", captures);
    one.Subgraph("body", MakeSubgraph(*body));
    batch.AddNode(std::move(one));
    def.mutable_args().Remove("directions");
    def.Arg("num_scan_inputs", static_cast<int64_t>(own));
    def.Subgraph("body", MakeSubgraph(std::move(batch)));
  }
  // Opset 20 renamed the modes, because it added volumes.
  static void GridSample(OnnxScope&, OperatorDef& def, int64_t) {
    const std::string mode = def.args().Get<std::string>("mode", "");
    if (mode == "bilinear") def.Arg("mode", "linear");
    if (mode == "bicubic") def.Arg("mode", "cubic");
  }
  // Before opset 16 pixels were not shifted by half a pixel; later opsets shift them by default.
  static void RoiAlign(OnnxScope&, OperatorDef& def, int64_t) {
    def.Arg("coordinate_transformation_mode", "output_half_pixel");
  }
  // Before opset 21 scale and bias had an element for each group; now they have one for each
  // channel. Repeats their elements.
  static void GroupNormalization(OnnxScope& scope, OperatorDef& def, int64_t) {
    const Tensor groups = Tensor::From<int64_t>({1}, {def.args().Get<int64_t>("num_groups", 0)});
    if (*groups.data<int64_t>() < 1)
      Throw(ErrorCode::kInvalidArgument, "it needs the attribute 'num_groups', 1 or more");
    auto node = [&](const char* op, const char* what, std::vector<std::string> inputs,
                    Arguments args = {}) {
      std::string result = scope.FreshName(def, what);
      scope.AddNode(OperatorDef(op, std::move(inputs), {result}, std::move(args)));
      return result;
    };
    auto list = [&](const char* what, int64_t number) {
      return scope.AddConstant(def, what, Tensor::From<int64_t>({1}, {number}));
    };
    const std::string channels =
        node("Shape", "channels", {Input(def, 0)}, {{"start", 1}, {"end", 2}});
    const std::string each =
        node("Div", "channels of a group", {channels, scope.AddConstant(def, "groups", groups)});
    for (size_t i = 1; i < 3; ++i) {
      const std::string column = node("Unsqueeze", "column", {Input(def, i), list("axis", 1)});
      const std::string repeated = node("Expand", "repeated", {column, each});
      SetInput(def, i, node("Reshape", "all", {repeated, list("length", -1)}));
    }
  }
  // Opset 20 made the axis an input, with another default.
  static void Dft(OnnxScope& scope, OperatorDef& def, int64_t) {
    const auto axis = def.args().Get<int64_t>("axis", 1);
    SetInput(def, 2, scope.AddConstant(def, "axis", Tensor::Scalar<int64_t>(axis)));
    def.mutable_args().Remove("axis");
  }

 private:
  static std::string Input(const OperatorDef& def, size_t i) {
    return i < def.inputs().size() ? def.inputs()[i] : std::string();
  }
  static void SetInput(OperatorDef& def, size_t i, std::string name) {
    if (def.inputs().size() <= i) def.mutable_inputs().resize(i + 1);
    def.mutable_inputs()[i] = std::move(name);
  }
  static int64_t KnownNumberOf(DType dtype) {
    if (const int64_t number = OnnxNumberOf(dtype)) return number;
    Throw(ErrorCode::kUnsupported,
          "the type of its data must be known, and neither the file nor an operator gives it");
  }
  // Moves a list of integers from an attribute to input `index`. An empty list meant the same as
  // no attribute.
  static void MoveInts(OnnxScope& scope, OperatorDef& def, const char* name, size_t index) {
    const auto values = def.args().Get<std::vector<int64_t>>(name, {});
    const auto count = static_cast<int64_t>(values.size());
    if (count > 0)
      SetInput(def, index, scope.AddConstant(def, name, Tensor::From<int64_t>({count}, values)));
    def.mutable_args().Remove(name);
  }
  // Moves a float from an attribute to input `index`, as a scalar of the first input's type.
  static void MoveScalar(OnnxScope& scope, OperatorDef& def, const char* name, size_t index) {
    if (!def.args().Has(name)) return;
    const auto value = def.args().Get<float>(name, 0.f);
    const DType dtype = scope.InfoOf(Input(def, 0)).dtype;
    const Tensor scalar = dtype == DType::kFloat16    ? Tensor::Scalar(float16(value))
                          : dtype == DType::kBFloat16 ? Tensor::Scalar(bfloat16(value))
                          : dtype == DType::kFloat64  ? Tensor::Scalar(double{value})
                                                      : Tensor::Scalar(value);
    SetInput(def, index, scope.AddConstant(def, name, scalar));
    def.mutable_args().Remove(name);
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_OPSET_RULES_HPP_
