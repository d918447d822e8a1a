#include "opkit/opkit.hpp"
#include "tiers.hpp"

namespace {

using namespace opkit;  // NOLINT: as a program has it

template <class Context>
void TierTwice(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(TierTwice).SameShape<"x", "y">().Kernel<CPUContext>();

}  // namespace

float TwiceByInvoke(float x) {
  return *Invoke("TierTwice", {Tensor::From<float>({1}, {x})})[0].data<float>();
}
