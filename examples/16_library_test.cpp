// A unit test of a library's operators without a host: their source is part of the program,
// included here; linking it does the same.
#include <cstdio>
#include <opkit/plugin/testing.hpp>

#include "library/gemm.cc"

using namespace opkit;

int main() try {
  testing::Load();  // throws the Errors of loading the library; the other functions call it too
  const Tensor a = Tensor::From<float>({1, 2}, {1, 2}), b = Tensor::From<float>({2, 1}, {3, 4});
  const Tensor dc = Tensor::From<float>({1, 1}, {1});
  const std::vector<Tensor> c = testing::Forward("my_gemm", {a, b}, {{"alpha", 2.f}});
  const std::vector<Tensor> gradients = testing::Backward("my_gemm", {a, b}, {dc});
  bool right = c[0].ToVector<float>() == std::vector<float>{22} &&
               gradients[0].ToVector<float>() == std::vector<float>{3, 4};

  const CheckReport made = testing::CheckOperator("my_gemm");  // of inputs that are made for it
  const CheckReport given = testing::CheckOperator("my_gemm", {a, b}, {{"alpha", 2.f}});
  for (const CheckReport& report : {made, given}) {
    std::puts(ToString(report).c_str());
    right &= report.ok();
  }
  return right ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
