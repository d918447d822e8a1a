// A library of typed functions. author.hpp comes first here, opkit.hpp first in classes.cc.
#include <opkit/plugin/author.hpp>

#include <opkit/opkit.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

template <class Context>
void LibAxpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
             Attr<"alpha", float> alpha) {
  ParallelFor(
      ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; }, 1);
}
OPKIT_OP(LibAxpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext>();

template <class Context, class T>
void LibSquare(Context& ctx, In<"x", T> x, Out<"y", T> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = x[i] * x[i]; });
}
OPKIT_OP(LibSquare)
    .SameShape<"x", "y">()
    .Kernel<CPUContext, float, double>()
    .Kernel<CPUStreamContext, float, double>();

Status Thrice(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = 3 * in[0].data<float>()[i];
  return SUCCESS;
}
REGISTER_OP(LibThrice)
    .setForward(Thrice)
    .setParseAttrs([](const AttrMap&, int* in, int* out) { *in = *out = 1; })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

}  // namespace
