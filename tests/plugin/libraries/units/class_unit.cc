#include <opkit/opkit.hpp>
#ifdef WITH_GRADIENT
#include <opkit/op/gradient/gradient.hpp>
#endif

namespace {

using namespace opkit;  // NOLINT: as an author writes it

class UnitNegateOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    float* const y = Output(0, x.shape(), DType::kFloat32)->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) y[i] = -x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(UnitNegate).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(UnitNegate, UnitNegateOp);
#ifdef WITH_GRADIENT
NO_GRADIENT(UnitNegate);
#endif

}  // namespace
