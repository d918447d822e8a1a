// Accumulate: an operator that rewrites its first input.
#ifndef OPKIT_TESTS_SUPPORT_ACCUMULATE_OP_HPP_
#define OPKIT_TESTS_SUPPORT_ACCUMULATE_OP_HPP_

#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"

namespace accumulate_op {

// Adds its second input to the first, in the caller's memory.
class AccumulateOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    opkit::Tensor* total = Output(0);
    const opkit::Tensor& x = Input(1);
    for (int64_t i = 0; i < x.numel(); ++i) total->mutable_data<float>()[i] += x.data<float>()[i];
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Accumulate)
    .NumInputs(2)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Accumulate, AccumulateOp);

}  // namespace accumulate_op

#endif  // OPKIT_TESTS_SUPPORT_ACCUMULATE_OP_HPP_
