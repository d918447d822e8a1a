// Nothing refers to this object, in an archive or a shared library, but what registers itself here.
#include "opkit/op/registration.hpp"

namespace archived {

template <class Context>
class TwiceOp final : public opkit::Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using opkit::Operator<Context>::Operator;

  bool RunOnDevice() override {
    const opkit::Tensor& x = Input(0);
    opkit::Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->template mutable_data<float>()[i] = 2 * x.template data<float>()[i];
    return true;
  }
};

OPERATOR_SCHEMA(Twice).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Twice, TwiceOp<opkit::CPUContext>);
OPKIT_REGISTRATIONS(archived_operators);

}  // namespace archived
