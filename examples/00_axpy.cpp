#include <cstdio>
#include <opkit/opkit.hpp>
using namespace opkit;

template <class Context>
void Axpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
          Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; });
}
OPKIT_OP(Axpy).SameShape<"x", "y", "z">().Kernel<CPUContext>();

int main() {
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  const std::vector<Tensor> z = Invoke("Axpy", {x, x}, {{"alpha", 2.f}});
  for (float value : z[0].ToVector<float>()) std::printf("%g ", value);
  return z[0].ToVector<float>() == std::vector<float>{3, 6, 9} ? 0 : 1;
}
