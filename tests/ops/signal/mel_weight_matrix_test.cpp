// MelWeightMatrix.
#include "opkit/ops/signal/mel_weight_matrix.hpp"

#include "../data_movement.hpp"

namespace mel_weight_matrix_test {
using namespace opkit_tests;

namespace {

Tensor Mel(int64_t bands, int64_t length, int64_t rate, float low, float high,
           Arguments args = {}) {
  return Invoke("MelWeightMatrix",
                {Tensor::Scalar(bands), Tensor::Scalar(length), Tensor::Scalar(rate),
                 Tensor::Scalar(low), Tensor::Scalar(high)},
                std::move(args))[0];
}

TEST_CASE("each band is a triangle of bins") {
  const Tensor y = Mel(2, 16, 1000, 0, 500);
  CHECK(y.shape() == Shape{9, 2});
  const Floats factors = FloatsOf(y);
  // 500 Hz are 607.45 mel: the edges are 0, 151.9, 303.7 and 455.6 mel, or 0, 101.0, 216.6 and
  // 348.8 Hz, of which 17 / 1000 makes the bins 0, 1, 3 and 5.
  CHECK(factors[0] == 0);
  CHECK(factors[2] == 1);                     // bin 1 of band 0
  CHECK(factors[4] == doctest::Approx(0.5));  // bin 2
  CHECK(factors[6] == 0);                     // bin 3
  CHECK(factors[1] == 0);
  CHECK(factors[3] == 0);
  CHECK(factors[5] == doctest::Approx(0.5));
  CHECK(factors[7] == 1);
  CHECK(factors[9] == doctest::Approx(0.5));
  CHECK(factors[11] == 0);
}

TEST_CASE("a band narrower than a bin keeps its middle") {
  for (const float factor : FloatsOf(Mel(3, 1, 1000, 0, 0))) CHECK(factor == 1);
  CHECK(Mel(3, 1, 1000, 0, 0, {{"output_datatype", 7}}).ToVector<int64_t>() == Ints{1, 1, 1});
}

TEST_CASE("shapes are inferred, and wrong numbers refused") {
  const Known some(DType::kInt64, SymbolicShape(Shape{}));
  const Known hertz(DType::kFloat32, SymbolicShape(Shape{}));
  CHECK(Inferred("MelWeightMatrix", {Tensor::Scalar<int64_t>(8), Tensor::Scalar<int64_t>(16), some,
                                     hertz, hertz}) == "float32[9, 8]");
  CHECK(Inferred("MelWeightMatrix", {some, some, some, hertz, hertz}, {{"output_datatype", 11}}) ==
        "float64[?, ?]");
  CHECK(Contains(
      Refused("MelWeightMatrix", {some, some, some, hertz, hertz}, {{"output_datatype", 9}}),
      "output_datatype=9 is not"));
  CHECK(Contains(ErrorOf([] { Mel(-1, 16, 1000, 0, 500); }).message(), "num_mel_bins is"));
  CHECK(Contains(ErrorOf([] { Mel(1, 0, 1000, 0, 500); }).message(), "dft_length is"));
  CHECK(Contains(ErrorOf([] { Mel(1, 16, 1000, 0, 501); }).message(), "half of the rate"));
  CHECK(Contains(ErrorOf([] { Mel(1, 16, 1000, 400, 300); }).message(), "lower <= upper"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("MelWeightMatrix", {"b", "l", "r", "f", "t"}, {"y"}),
            {Tensor::Scalar<int64_t>(3), Tensor::Scalar<int64_t>(16), Tensor::Scalar<int64_t>(8000),
             Tensor::Scalar(0.f), Tensor::Scalar(4000.f)});
}

}  // namespace
}  // namespace mel_weight_matrix_test
