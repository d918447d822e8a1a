// HannWindow, HammingWindow, BlackmanWindow.
#include "opkit/ops/signal/window_function.hpp"

#include "../data_movement.hpp"

namespace window_function_test {
using namespace opkit_tests;

namespace {

void CheckWindow(const char* op, int64_t size, int64_t periodic, const Floats& expected) {
  const Tensor y = Invoke(op, {Tensor::Scalar(size)}, {{"periodic", periodic}})[0];
  REQUIRE(y.numel() == static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(FloatsOf(y)[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("windows are periodic or symmetric") {
  CheckWindow("HannWindow", 4, 1, {0, 0.5f, 1, 0.5f});
  CheckWindow("HannWindow", 5, 0, {0, 0.5f, 1, 0.5f, 0});
  CheckWindow("HammingWindow", 4, 1, {4 / 46.f, 25 / 46.f, 1, 25 / 46.f});
  CheckWindow("BlackmanWindow", 4, 1, {0, 0.34f, 1, 0.34f});
  CheckWindow("BlackmanWindow", 1, 0, {1});
  CheckWindow("BlackmanWindow", 0, 1, {});
}

TEST_CASE("the type is an attribute, and wrong sizes are refused") {
  CHECK(Inferred("HannWindow", {Tensor::Scalar<int64_t>(3)}, {{"output_datatype", 11}}) ==
        "float64[3]");
  CHECK(Inferred("HannWindow", {{DType::kInt32, SymbolicShape(Shape{})}}) == "float32[?]");
  CHECK(Contains(Refused("HannWindow", {List({2})}), "size has the shape [1], expected a scalar"));
  CHECK(Contains(Refused("HannWindow", {Tensor::Scalar<int64_t>(-1)}),
                 "size is -1, expected 0 or more"));
  CHECK(Contains(Refused("HannWindow", {Tensor::Scalar<int64_t>(1)}, {{"output_datatype", 9}}),
                 "output_datatype=9 is not"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  for (const char* op : {"BlackmanWindow", "HammingWindow", "HannWindow"})
    CheckNode(OperatorDef(op, {"size"}, {"y"}), {Tensor::Scalar<int64_t>(5)});
}

}  // namespace
}  // namespace window_function_test
