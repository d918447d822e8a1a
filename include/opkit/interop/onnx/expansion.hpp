// OnnxExpansion: the nodes that take the place of one node of an ONNX file.
#ifndef OPKIT_INTEROP_ONNX_EXPANSION_HPP_
#define OPKIT_INTEROP_ONNX_EXPANSION_HPP_

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

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_EXPANSION_HPP_
