// DFT and STFT of the "eigen" backend: the same as the plain operators.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace fourier_test {
using namespace opkit;

namespace {

TEST_CASE("DFT of lines of every kind of length, along every axis") {
  for (const int64_t n : {1, 2, 3, 8, 30, 97, 400, 512})
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Tensor real = Random({3, n, 1}, 1, dtype), complex = Random({n, 2, 2}, 2, dtype);
      CheckSameOn("eigen", "DFT", {real});
      CheckSameOn("eigen", "DFT", {real}, {{"onesided", 1}});
      for (const int64_t inverse : {0, 1})
        CheckSameOn("eigen", "DFT", {complex, Tensor(), Tensor::Scalar<int64_t>(0)},
                    {{"inverse", inverse}});
      CheckSameOn("eigen", "DFT", {complex, Tensor::Scalar(n), Tensor::Scalar<int64_t>(0)},
                  {{"inverse", 1}, {"onesided", 1}});
    }
}

TEST_CASE("STFT of real and complex signals") {
  const Tensor step = Tensor::Scalar<int64_t>(160), window = Random({400}, 3);
  CheckSameOn("eigen", "STFT", {Random({2, 4000, 1}, 1), step, window});
  CheckSameOn("eigen", "STFT", {Random({1, 900, 2}, 2), step, window}, {{"onesided", 0}});
}

TEST_CASE("DFT and STFT keep the promises of their schemas on every backend") {
  CheckNode(OperatorDef("DFT", {"x"}, {"y"}), {Random({2, 6, 2}, 1)});
  CheckNode(OperatorDef("STFT", {"x", "step", "window"}, {"y"}),
            {Random({2, 11, 1}, 1), Tensor::Scalar<int64_t>(3), Random({4}, 2)});
}

}  // namespace
}  // namespace fourier_test
