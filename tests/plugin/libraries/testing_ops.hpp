// Operators that testing_test.cpp includes as an author's test includes a library's source.
#include <algorithm>
#include <opkit/op/gradient/gradient.hpp>
#include <opkit/opkit.hpp>
#include <opkit/plugin/author.hpp>

namespace testing_ops { namespace {

using namespace opkit;  // NOLINT: as an author writes it

Status Cube(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
            OpResource&) {
  const float scale = attrs.Get("scale", 1.f);
  if (scale == 0) {
    OPKIT_ERROR_MSG << "scale is 0";
    return FAIL;
  }
  const float* x = in[0].data<float>();
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = scale * x[i] * x[i] * x[i];
  return SUCCESS;
}
Status CubeBackward(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                    OpResource&) {
  const float factor = attrs.Get("wrong_gradient", false) ? 2.f : 3.f;
  const float scale = attrs.Get("scale", 1.f) * factor;
  const float* x = in[1].data<float>();
  for (int64_t i = 0; i < in[1].size(); ++i)
    out[0].data<float>()[i] = in[0].data<float>()[i] * scale * x[i] * x[i];
  return SUCCESS;
}
int OneToOne(const AttrMap&, int* num_in, int* num_out) { return *num_in = *num_out = 1; }
Status SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  if (in[0] == std::vector<int64_t>{13}) return Status::Failure("13 is refused");
  out[0] = in[0];
  return SUCCESS;
}
REGISTER_OP(TestedCube)
    .setForward(Cube)
    .setBackward(CubeBackward)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// Writes "past" more elements than the output has.
Status Past(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
            OpResource&) {
  const int64_t count = in[0].size() + attrs.Get("past", 0);
  for (int64_t i = 0; i < count; ++i) out[0].data<float>()[i] = 1;
  return SUCCESS;
}
REGISTER_OP(TestedPlain).setForward(Past).setParseAttrs(OneToOne).setInferShape(SameShape);

// Takes bytes alone.
REGISTER_OP(TestedBytes)
    .input("bytes")
    .output("bytes")
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      std::copy_n(in[0].data<uint8_t>(), in[0].size(), out[0].data<uint8_t>());
    })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) -> Status {
      if (in[0] != DType::kUInt8) return Status::Failure("only bytes can be packed");
      out[0] = DType::kUInt8;
      return SUCCESS;
    })
    .setInferShape(SameShape)
    .noGradient();

class BiasOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(TestedBias).NumInputs(1, 2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(TestedBias, BiasOp);
class BiasGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    SetDense(0, GO(0));
    return {};
  }
};
REGISTER_GRADIENT(TestedBias, BiasGradient);

}  // namespace
}  // namespace testing_ops
