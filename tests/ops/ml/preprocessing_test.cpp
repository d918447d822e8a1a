// Normalizer, Scaler and Binarizer.
#include "opkit/ops/ml/preprocessing.hpp"

#include "../data_movement.hpp"

namespace preprocessing_test {
using namespace opkit_tests;

namespace {

Floats Normalized(const Tensor& x, const char* norm) {
  return FloatsOf(Invoke("ai.onnx.ml.Normalizer", {x}, {{"norm", norm}})[0]);
}

TEST_CASE("rows are divided by their greatest element, their sum or their length") {
  const Tensor x = Tensor::From<float>({3, 2}, {3, -4, -2, -1, 0, 0});
  CHECK(Normalized(x, "MAX") == Floats{1, -4.f / 3, 2, 1, 0, 0});
  CHECK(Normalized(x, "L1") == Floats{3.f / 7, -4.f / 7, -2.f / 3, -1.f / 3, 0, 0});
  const Floats length = Normalized(x, "L2");
  CHECK(length[0] == 0.6f);
  CHECK(length[1] == -0.8f);
  CHECK(length[4] == 0);
  CHECK(Normalized(Tensor::From<int64_t>({2}, {3, 4}), "L2") == Floats{0.6f, 0.8f});
  CHECK(Normalized(Tensor::From<float>({0, 2}, {}), "L1").empty());
}

TEST_CASE("an offset is subtracted before the scale") {
  const auto scaled = [](const Tensor& x, Floats scale, Floats offset) {
    return FloatsOf(Invoke("ai.onnx.ml.Scaler", {x}, {{"scale", scale}, {"offset", offset}})[0]);
  };
  const Tensor x = Tensor::From<int32_t>({2, 2}, {1, 2, 3, 4});
  CHECK(scaled(x, {2, 10}, {1, -1}) == Floats{0, 30, 4, 50});
  CHECK(scaled(x, {2}, {1}) == Floats{0, 2, 4, 6});
  CHECK(Contains(ErrorOf([&] {
                   scaled(x, {1, 2, 3}, {1, 2, 3});
                 }).message(),
                 "have 2 columns, but 'scale' has 3 elements"));
  CHECK(Contains(ErrorOf([&] { scaled(x, {1, 2}, {1}); }).message(), "expected as many in both"));
}

TEST_CASE("elements above the threshold become 1") {
  const auto binary = [](const Tensor& x) {
    return Invoke("ai.onnx.ml.Binarizer", {x}, {{"threshold", 1.f}})[0];
  };
  CHECK(FloatsOf(binary(Vector<float>({0, 1, 1.5f, NAN}))) == Floats{0, 0, 1, 0});
  CHECK(binary(Vector<int64_t>({0, 1, 2})).ToVector<int64_t>() == Ints{0, 0, 1});
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  CheckNode(OperatorDef("ai.onnx.ml.Normalizer", {"x"}, {"y"}, {{"norm", "L2"}}), {x});
  CheckNode(
      OperatorDef("ai.onnx.ml.Scaler", {"x"}, {"y"}, {{"scale", Floats{2}}, {"offset", Floats{1}}}),
      {x});
  CheckNode(OperatorDef("ai.onnx.ml.Binarizer", {"x"}, {"y"}), {x});
}

}  // namespace
}  // namespace preprocessing_test
