// compiles
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

// As the design writes it.
// clang-format off
template <class Context>
void Axpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z, Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE (int64_t i) { z[i] = alpha * x[i] + y[i]; });
}
OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">().Default<"alpha">(1.f)
    .Kernel<CPUContext>();           // .Kernel<CUDAContext>() in a .cu file
