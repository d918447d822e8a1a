// Shape inference of a node, for the tests of its rules.
#ifndef OPKIT_TESTS_OPS_INFER_HPP_
#define OPKIT_TESTS_OPS_INFER_HPP_

#include "../error_of.hpp"
#include "opkit/op/op_registry.hpp"

// Of all outputs. An input of no dtype and no rank is one that the node leaves out.
inline std::vector<opkit::TensorInfo> InferAll(const std::string& op,
                                               std::vector<opkit::TensorInfo> inputs,
                                               opkit::Arguments args = {}, int num_outputs = 1) {
  opkit::OperatorDef def(op, {}, {}, std::move(args));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool there = inputs[i].dtype != opkit::DType::kUndefined || inputs[i].shape.has_rank();
    def.Input(there ? opkit::StrCat("in", i) : std::string());
  }
  for (int o = 0; o < num_outputs; ++o) def.Output(opkit::StrCat("out", o));
  return opkit::OpRegistry::Global().GetSchema(op).InferOutputs(def, std::move(inputs));
}
// "float32[N, 3]": of the first output.
inline std::string Inferred(const std::string& op, std::vector<opkit::TensorInfo> inputs,
                            opkit::Arguments args = {}) {
  return ToString(InferAll(op, std::move(inputs), std::move(args))[0]);
}
// Why inference refuses.
inline std::string Refused(const std::string& op, std::vector<opkit::TensorInfo> inputs,
                           opkit::Arguments args = {}, int num_outputs = 1) {
  return ErrorOf([&] { InferAll(op, std::move(inputs), std::move(args), num_outputs); }).message();
}
inline opkit::TensorInfo F(opkit::SymbolicShape shape) {
  return {opkit::DType::kFloat32, std::move(shape)};
}

#endif  // OPKIT_TESTS_OPS_INFER_HPP_
