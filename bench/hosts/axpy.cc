// The operator that hosts.py times in every host, and the same operator called from C++. Compiled
// as an author compiles it: one command, header-only, -O2.
#include <opkit/op.hpp>
#include <opkit/opkit.hpp>

#include <chrono>

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

OPKIT_EXPORT_DOMAIN("bench");
OPKIT_EXPORT(Axpy);

// Calls the operator of this library from C++, on a program's memory with n elements; with z null
// each call makes a new output and drops it. Returns the seconds of all calls. The threads are
// those of the library's own pool: OPKIT_NUM_THREADS.
extern "C" OPKIT_VISIBLE double bench_axpy(const float* x, const float* y, float* z, int64_t n,
                                           int64_t calls) {
  using opkit::Tensor;
  opkit::ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
  const Tensor inputs[] = {Tensor::FromExternal(x, {n}), Tensor::FromExternal(y, {n})};
  Tensor outputs[] = {z ? Tensor::FromExternal(z, {n}) : Tensor()};
  const auto call = [&] {
    if (!z) outputs[0] = Tensor();
    axpy.Run(inputs, outputs);
  };
  call();
  if (z && outputs[0].raw_data() != z) return -1;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
