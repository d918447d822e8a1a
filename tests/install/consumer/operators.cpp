// Nothing refers to this object: in a static library only its registration could keep it.
#include <opkit/opkit.hpp>

namespace {

class AnswerOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(opkit::CPUContext);
  using Operator::Operator;

  bool RunOnDevice() override {
    *Output(0, {1}, opkit::DType::kFloat32)->mutable_data<float>() = 42;
    return true;
  }
};

OPERATOR_SCHEMA(Answer).NumInputs(0).NumOutputs(1);
REGISTER_CPU_OPERATOR(Answer, AnswerOp);

}  // namespace
