// Shape inference of a node as text, for the tests of its rules.
#ifndef OPKIT_TESTS_OPS_INFER_HPP_
#define OPKIT_TESTS_OPS_INFER_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/op/op_registry.hpp"
#include "support/error_of.hpp"

#include <optional>

namespace opkit_tests {

using namespace opkit;

// An input as inference knows it: float32 of a shape, another dtype, or all of its data.
struct Known {
  Known(SymbolicShape known) : shape(std::move(known)) {}
  Known(std::initializer_list<Dim> dims) : shape(dims) {}
  Known(DType type, SymbolicShape known) : dtype(type), shape(std::move(known)) {}
  Known(TensorInfo info) : dtype(info.dtype), shape(std::move(info.shape)) {
    if (info.constant != nullptr) data = *info.constant;
  }
  Known(const Tensor& tensor) : dtype(tensor.dtype()), shape(tensor.shape()), data(tensor) {}

  DType dtype = DType::kFloat32;
  SymbolicShape shape;
  std::optional<Tensor> data;
};

// The inferred types of the outputs, "float32[N, 2]" each, joined by blanks.
inline std::string Inferred(const std::string& op, const std::vector<Known>& inputs,
                            Arguments args = {}, int outputs = 1) {
  OperatorDef def(op, {}, {}, std::move(args));
  std::vector<TensorInfo> infos;
  for (const Known& input : inputs) {
    const bool given = input.dtype != DType::kUndefined;
    def.Input(given ? StrCat("input", infos.size()) : std::string());
    infos.emplace_back(input.dtype, input.shape);
    if (input.data) infos.back().constant = &*input.data;
  }
  for (int o = 0; o < outputs; ++o) def.Output(StrCat("output", o));
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  if (std::string why = schema.Verify(def); !why.empty()) return why;
  std::string text;
  for (const TensorInfo& info : schema.InferOutputs(def, infos))
    text += (text.empty() ? "" : " ") + ToString(info);
  return text;
}
// The message of the Error that inference throws.
inline std::string Refused(const std::string& op, const std::vector<Known>& inputs,
                           Arguments args = {}, int outputs = 1) {
  return ErrorOf([&] { Inferred(op, inputs, args, outputs); }).message();
}
inline const Known kLeftOut(DType::kUndefined, {});
inline const SymbolicShape kNoRank;
inline TensorInfo F(SymbolicShape shape) { return {DType::kFloat32, std::move(shape)}; }

}  // namespace opkit_tests

#endif  // OPKIT_TESTS_OPS_INFER_HPP_
