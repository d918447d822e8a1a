// An operator that opkit, Python with NumPy, ONNX Runtime, JAX and PyTorch call from one file.
// docs/hosts.md shows a program for each of them.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/exported.cc -o libexported.so
#include <opkit/op.hpp>
#include <opkit/opkit.hpp>

#include <opkit/export/all.hpp>

template <class Context, class T>
void Axpy(Context& ctx, opkit::In<"x", T> x, opkit::In<"y", T> y, opkit::Out<"z", T> z,
          opkit::Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  opkit::ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = a * x[i] + y[i]; });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<opkit::CPUContext, float, double>();

OPKIT_EXPORT_DOMAIN("mine");
OPKIT_EXPORT(Axpy);
