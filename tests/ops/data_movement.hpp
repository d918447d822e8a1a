// What tests of operators that move data share: tensors whose elements tell where they come from,
// and inference as text.
#ifndef OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
#define OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_

#include <doctest/doctest.h>

#include <cmath>

#include "../error_of.hpp"
#include "opkit/interop/doctest.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit_tests {

using namespace opkit;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

// 0, 1, 2, … in row-major order.
inline Tensor Counted(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype);
  for (int64_t i = 0; i < shape.numel(); ++i) detail::SetNumber(out, i, static_cast<double>(i));
  return out;
}
inline Tensor List(const Ints& values) {
  return Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values);
}
inline Floats FloatsOf(const Tensor& tensor) { return tensor.ToVector<float>(); }

// An input as inference knows it: float32 of a shape, another dtype, or all of its data.
struct Known {
  Known(SymbolicShape known) : shape(std::move(known)) {}
  Known(std::initializer_list<Dim> dims) : shape(dims) {}
  Known(DType type, SymbolicShape known) : dtype(type), shape(std::move(known)) {}
  Known(const Tensor& tensor) : dtype(tensor.dtype()), shape(tensor.shape()), data(tensor) {}

  DType dtype = DType::kFloat32;
  SymbolicShape shape;
  std::optional<Tensor> data;
};

// What is inferred of the outputs: "float32[N, 2]", and the next ones behind it.
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

// The node on these inputs is what it claims to be, in every way that CheckOperator tries.
inline void CheckNode(const OperatorDef& def, const std::vector<Tensor>& inputs) {
  const CheckReport report = CheckOperator(def, inputs);
  INFO(ToString(report));
  CHECK(report.ok());
}

}  // namespace opkit_tests

#endif  // OPKIT_TESTS_OPS_DATA_MOVEMENT_HPP_
