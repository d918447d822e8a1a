// A library of class operators for CUDA, over the fake runtime of the program that loads it.
#include <opkit/opkit.hpp>

#include <opkit/backends/cuda/context.hpp>
#include <opkit/plugin/author.hpp>

#include "../fake_runtime.hpp"

namespace {

using namespace opkit;  // NOLINT: as an author writes it

// y = 2 * x, by a kernel on the context's stream; into memory of its own where "elsewhere" is
// given.
class TwiceOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    if (HasArgument("elsewhere")) SetOutputTensor(0, Tensor(x.shape(), x.dtype(), device()));
    Tensor* y = Output(0, x.shape(), x.dtype());
    fake::Enqueue(context_.cuda_stream(),
                  [n = x.numel(), from = x.data<float>(), to = y->mutable_data<float>()] {
                    for (int64_t i = 0; i < n; ++i) to[i] = 2 * from[i];
                  });
    return !HasArgument("refuse");
  }
};
OPERATOR_SCHEMA(LibCudaTwice)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("elsewhere", "")
    .Arg("refuse", "")
    .IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(LibCudaTwice, TwiceOp);

}  // namespace
