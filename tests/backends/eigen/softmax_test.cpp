// Softmax and LogSoftmax of the "eigen" backend: the same as the plain operators.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace softmax_test {
using namespace opkit;

namespace {

TEST_CASE("Every axis of every size is normalized as the plain operator does") {
  const Shape shapes[] = {{7},         {1},     {3, 5},       {40, 6625}, {5, 1, 31}, {3, 300, 7},
                          {2, 3, 700}, {64, 2}, {2, 9, 4, 5}, {0, 3},     {3, 0},     {1, 1, 1}};
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const Shape& shape : shapes)
      for (int axis = 0; axis < shape.rank(); ++axis) {
        Tensor x = Random(shape, 1);
        for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] *= 20;
        CheckSameOn("eigen", op, {x}, {{"axis", axis}});
      }
}

TEST_CASE("Infinities and NaN give the results of the plain operator") {
  const float inf = std::numeric_limits<float>::infinity(), nan = inf - inf;
  const Tensor x = Tensor::From<float>(
      {5, 3}, {1, -inf, 2, inf, 1, 2, -inf, -inf, -inf, 1, nan, 2, 3e38f, -3e38f, 3e38f});
  const Tensor turned = x.Permute({1, 0}).Contiguous();
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    CheckSameOn("eigen", op, {x});
    CheckSameOn("eigen", op, {turned}, {{"axis", 0}});
  }
}

TEST_CASE("The softmax of minus infinity is 0") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int axis : {0, 1}) {
    Tensor x = Filled({40, 40}, -inf);
    for (int64_t i = 0; i < 40; ++i) x.mutable_data<float>()[41 * i] = 1;
    const auto y = Invoke("Softmax", {x}, {{"axis", axis}}, {.backends = "eigen"})[0];
    for (int64_t i = 0; i < y.numel(); ++i) REQUIRE(y.data<float>()[i] == (i % 41 == 0));
  }
}

TEST_CASE("Softmax and LogSoftmax keep the promises of their schemas on every backend") {
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const int axis : {0, 2})
      CheckNode(OperatorDef(op, {"x"}, {"y"}, {{"axis", axis}}), {Random({3, 5, 40}, 1)});
}

}  // namespace
}  // namespace softmax_test
