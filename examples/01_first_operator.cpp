// Defines an operator, runs it, makes a mistake and prints the error.
//   g++ -std=c++20 -Isingle_include examples/01_first_operator.cpp -o first && ./first
#include <cstdio>
#include <opkit/opkit.hpp>

using namespace opkit;

template <class Context>
void Axpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
          Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; });
}

OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext>();

int main() {
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  const Tensor y = Tensor::From<float>({3}, {10, 20, 30});

  const std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
  for (float value : out[0].ToVector<float>()) std::printf("%g ", value);
  std::printf("\n");

  try {
    Invoke("Axpy", {x, y}, {{"alhpa", 2.f}});
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  return out[0].ToVector<float>() == std::vector<float>{12, 24, 36} ? 0 : 1;
}
