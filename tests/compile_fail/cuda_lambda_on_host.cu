// expect: ParallelFor: this lambda is for the device only and would do nothing on a host context; compile the CPU kernel in a .cc file, or pass a struct with an OPKIT_HOST_DEVICE call operator
#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Twice(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(Twice).SameShape<"x", "y">().Kernel<CPUContext>();
