// Identity and Dropout.
#include "opkit/ops/identity.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace identity_test {
using namespace opkit;

namespace {

std::vector<Tensor> Drop(const Tensor& x, float ratio, Arguments args = {}, bool training = true) {
  return Invoke("Dropout", {x, Tensor::Scalar(ratio), Tensor::Scalar(training)}, std::move(args),
                {.num_outputs = 2});
}
Tensor Ones(int64_t n) {
  Tensor x({n}, DType::kFloat32);
  for (int64_t i = 0; i < n; ++i) x.mutable_data<float>()[i] = 1;
  return x;
}

TEST_CASE("Identity copies, and does nothing in place") {
  const Tensor x = Tensor::From<int16_t>({2, 1}, {3, 4});
  const Tensor y = Invoke("Identity", {x})[0];
  CHECK(y.shape() == Shape{2, 1});
  CHECK(y.ToVector<int16_t>() == std::vector<int16_t>{3, 4});
  CHECK(y.raw_data() != x.raw_data());
  for (const DType dtype : {DType::kInt4, DType::kUInt2, DType::kFloat8E8M0}) {
    const Tensor small = RandomTensor(Shape{3, 5}, dtype);
    CHECK(detail::SameBytes(Invoke("Identity", {small})[0], small));
  }
  OPKIT_CHECK_OPERATOR("Identity");
}

TEST_CASE("Dropout in inference passes its data through, and its mask is true") {
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  CHECK(Invoke("Dropout", {x}, {}, {.num_outputs = 1})[0].ToVector<float>() == Floats{1, 2, 3});
  const auto out = Drop(x, 0.9f, {}, false);
  CHECK(out[0].ToVector<float>() == Floats{1, 2, 3});
  CHECK(out[1].ToVector<bool>() == std::vector<bool>{true, true, true});
  CHECK(Drop(x, 0)[0].ToVector<float>() == Floats{1, 2, 3});
}

TEST_CASE("Dropout with a seed drops the elements that NumPy's RandomState drops") {
  // numpy.random.RandomState(0).uniform(size=6): 0.549, 0.715, 0.603, 0.545, 0.424, 0.646
  const auto out = Drop(Ones(6), 0.6f, {{"seed", 0}});
  CHECK(out[1].ToVector<bool>() == std::vector<bool>{false, true, true, false, false, true});
  const float scale = 1 / (1 - 0.6f);
  CHECK(out[0].ToVector<float>() == Floats{0, scale, scale, 0, 0, scale});
  CHECK(Drop(Ones(6), 0.6f, {{"seed", 0}})[1].ToVector<bool>() == out[1].ToVector<bool>());
}

TEST_CASE("Dropout without a seed drops others in every run, and the same again after SetSeed") {
  ResolvedOperator dropout("Dropout", 3, {}, {.num_outputs = 2});
  auto mask = [&] {
    return dropout({Ones(1000), Tensor::Scalar(0.25f), Tensor::Scalar(true)})[1].ToVector<bool>();
  };
  SetSeed(7);
  const auto first = mask(), second = mask();
  CHECK(first != second);
  SetSeed(7);
  CHECK(mask() == first);
  int64_t kept = 0;
  for (const bool one : first) kept += one;
  CHECK(kept > 700);
  CHECK(kept < 800);
}

TEST_CASE("each call of Invoke draws other numbers, and the same again after SetSeed") {
  const auto masks = [] {
    std::vector<std::vector<bool>> drawn;
    for (int call = 0; call < 3; ++call) drawn.push_back(Drop(Ones(100), 0.5f)[1].ToVector<bool>());
    return drawn;
  };
  SetSeed(7);
  const auto first = masks();
  CHECK(first[0] != first[1]);
  CHECK(first[1] != first[2]);
  CHECK(first[0] != first[2]);
  SetSeed(7);
  CHECK(masks() == first);
}

TEST_CASE("Dropout refuses a ratio that leaves nothing") {
  CHECK(ErrorOf([&] { Drop(Ones(2), 1); }).message() ==
        "Dropout: the ratio is 1, expected 0 or more and less than 1");
  CHECK(ErrorOf([&] { Drop(Ones(2), NAN); }).code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Dropout", {Ones(2), Ones(2)}, {}, {.num_outputs = 1});
                 }).message(),
                 "Dropout: input 1 'ratio' has shape [2], expected a scalar"));
}

TEST_CASE("Dropout keeps the promises of its schema") {
  CheckOptions options;
  options.num_inputs = 1;
  OPKIT_CHECK_OPERATOR("Dropout", options);
}

TEST_CASE("Dropout gives the gradient of kept elements, which only its mask shows") {
  const Tensor x = Tensor::From<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const bool training : {true, false}) {
    const auto result = CheckGradient(
        OperatorDef("Dropout", {"x", "ratio", "training"}, {"y", "mask"}, {{"seed", 3}}),
        {x, Tensor::Scalar(0.25f), Tensor::Scalar(training)}, {.inputs = {0}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
  const OperatorDef bare("Dropout", {"x", "", "training"}, {"y"});
  const Error error = ErrorOf([&] { GetGradientForOp(bare, {GradientValue("g")}); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "only if the node has its second output, the mask"));
}

}  // namespace
}  // namespace identity_test
