// Every signature that REGISTER_OP takes, each run once.
#include <doctest/doctest.h>

#include <map>
#include <unordered_map>

#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace function_signature_test {
using namespace opkit;  // NOLINT: as an author writes it

namespace {

using Map = std::map<std::string, std::string>;
using HashMap = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<OpTensor>;

// y = scale * x
void Scale(const OpTensor& x, const OpTensor& y, float scale) {
  for (int64_t i = 0; i < x.size(); ++i) y.data<float>()[i] = scale * x.data<float>()[i];
}
float Run(const char* op) {
  const std::vector<Tensor> out = Invoke(op, {Tensor::From<float>({2}, {1, 2})}, {{"scale", 3}});
  return out[0].data<float>()[1];
}

// Forward: map by value or reference, ordered or not; vectors by value, reference, pointer; spans.
int IntForward(std::map<std::string, std::string> attrs, std::vector<OpTensor> inputs,
               std::vector<OpTensor> outputs, OpResource) {
  Scale(inputs[0], outputs[0], std::stof(attrs.at("scale")));
  return 1;
}
bool BoolForward(const Map& attrs, const Tensors& inputs, const Tensors& outputs,
                 const OpResource&) {
  Scale(inputs[0], outputs[0], std::stof(attrs.at("scale")));
  return true;
}
ReturnValue ValueForward(HashMap attrs, Tensors& inputs, Tensors& outputs, OpResource&) {
  Scale(inputs[0], outputs[0], std::stof(attrs.at("scale")));
  return SUCCESS;
}
void VoidForward(const HashMap& attrs, Tensors* inputs, Tensors* outputs, OpResource) {
  Scale((*inputs)[0], (*outputs)[0], std::stof(attrs.at("scale")));
}
ReturnValue PointerForward(const HashMap& attrs, const std::vector<OpTensor>* inputs,
                           const std::vector<OpTensor>* outputs, const OpResource&) {
  Scale((*inputs)[0], (*outputs)[0], std::stof(attrs.at("scale")));
  return SUCCESS;
}
Status FastForward(const AttrMap& attrs, std::span<const OpTensor> inputs,
                   std::span<OpTensor> outputs, OpResource&) {
  Scale(inputs[0], outputs[0], attrs.Get("scale", 1.f));
  return {};
}
int NoexceptForward(const AttrMap&, std::span<const OpTensor> inputs,
                    std::span<const OpTensor> outputs, OpResource) noexcept {
  Scale(inputs[0], outputs[0], 3);
  return SUCCESS;
}

// The same kinds for attributes and inference.
int ParseByValue(std::map<std::string, std::string>, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}
bool ParseHashed(const HashMap& attrs, int* num_in, int* num_out) {
  *num_in = *num_out = static_cast<int>(attrs.count("scale"));
  return true;
}
Status ParseFast(const AttrMap& attrs, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return attrs.Has("scale") ? Status() : Status::Failure("scale is missing");
}
int TypeByReference(std::map<std::string, std::string>, std::vector<int>& in,
                    std::vector<int>& out) {
  out[0] = in[0];
  return SUCCESS;
}
void TypeByPointer(const HashMap&, std::vector<int>* in, std::vector<int>* out) {
  (*out)[0] = (*in)[0];
}
bool TypeAsDType(const AttrMap&, const std::vector<DType>& in, std::vector<DType>& out) {
  out[0] = in[0];
  return true;
}
int ShapeUnsigned(std::map<std::string, std::string>, std::vector<std::vector<unsigned int>>& in,
                  std::vector<std::vector<unsigned int>>& out) {
  out[0] = in[0];
  return SUCCESS;
}
void ShapeWide(const Map&, std::vector<std::vector<int64_t>>* in,
               std::vector<std::vector<int64_t>>* out) {
  (*out)[0] = (*in)[0];
}
Status ShapeByValue(const AttrMap&, std::vector<std::vector<unsigned int>> in,
                    std::vector<std::vector<unsigned int>>& out) {
  out[0] = in[0];
  return SUCCESS;
}

REGISTER_OP(SigInt)
    .setForward(IntForward, "cpu")
    .setParseAttrs(ParseByValue)
    .setInferType(TypeByReference)
    .setInferShape(ShapeUnsigned);
REGISTER_OP(SigBool)
    .setForward(&BoolForward)
    .setParseAttrs(ParseHashed)
    .setInferType(TypeByPointer)
    .setInferShape(ShapeWide);
REGISTER_OP(SigValue)
    .setForward(ValueForward)
    .setParseAttrs(ParseFast)
    .setInferType(TypeAsDType)
    .setInferShape(ShapeByValue);
REGISTER_OP(SigVoid).setForward(VoidForward).setParseAttrs(ParseFast).setInferShape(ShapeWide);
REGISTER_OP(SigPointer)
    .setForward(PointerForward)
    .setParseAttrs(ParseFast)
    .setInferShape(ShapeWide);
REGISTER_OP(SigFast).setForward(FastForward).setParseAttrs(ParseFast).setInferShape(ShapeWide);
REGISTER_OP(SigNoexcept)
    .setForward(NoexceptForward)
    .setParseAttrs(ParseFast)
    .setInferShape(ShapeWide);
REGISTER_OP(SigLambda)
    .setForward([calls = 0](const AttrMap&, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource&) mutable {
      Scale(inputs[0], outputs[0], static_cast<float>(++calls));
      return SUCCESS;
    })
    .setParseAttrs(ParseFast)
    .setInferShape(ShapeWide);

// Answers other than success.
template <int kValue>
int Return(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return kValue;
}
REGISTER_OP(SigReturns0).setForward(Return<0>).setParseAttrs(ParseFast).setInferShape(ShapeWide);
REGISTER_OP(SigReturns7).setForward(Return<7>).setParseAttrs(ParseFast).setInferShape(ShapeWide);

}  // namespace

TEST_CASE("every signature of forward, parseAttrs, inferType and inferShape runs") {
  for (const char* op :
       {"SigInt", "SigBool", "SigValue", "SigVoid", "SigPointer", "SigFast", "SigNoexcept"}) {
    CAPTURE(op);
    CHECK(Run(op) == 6);
  }
}

TEST_CASE("a lambda with state of its own keeps it from call to call") {
  CHECK(Run("SigLambda") == 2);
  CHECK(Run("SigLambda") == 4);
}

TEST_CASE("1 is success, 0 is FAIL, and another number is neither") {
  const Error fail = ErrorOf([] { Run("SigReturns0"); });
  CHECK(fail.code() == ErrorCode::kOperatorFailed);
  CHECK(fail.message() ==
        "forward of operator SigReturns0 failed: it returned FAIL, which is 0 (SUCCESS is 1); say "
        "why with "
        "OPKIT_ERROR_MSG << \"…\"");
  CHECK(ErrorOf([] { Run("SigReturns7"); }).message() ==
        "forward of operator SigReturns7 failed: it returned 7; 1 is SUCCESS and 0 is FAIL");
}

TEST_CASE("shapes of unsigned int are never wrapped") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("SigInt");
  const OperatorDef def("SigInt", {"x"}, {"y"}, {{"scale", 1}});
  auto infer = [&](SymbolicShape shape) {
    return schema.InferOutputs(def, {TensorInfo(DType::kInt8, std::move(shape))})[0];
  };
  CHECK(ToString(infer(Shape{5, 4294967294})) == "int8[5, 4294967294]");
  CHECK(ToString(infer({5, Dim()})) == "int8[5, ?]");
  const Error error = ErrorOf([&] { infer(Shape{5, 4294967295}); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(Contains(error.message(), "extent 4294967295 of input 0 does not fit in unsigned int"));
  // int64_t has no such limit.
  const OperatorDef wide("SigBool", {"x"}, {"y"}, {{"scale", 1}});
  CHECK(ToString(OpRegistry::Global().GetSchema("SigBool").InferOutputs(
            wide, {TensorInfo(DType::kInt8, Shape{5, 4294967296})})[0]) == "int8[5, 4294967296]");
}

}  // namespace function_signature_test
