// The reductions of the "eigen" backend: the same as the plain operators, whatever the axes are.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace reduce_test {
using namespace opkit;

namespace {

const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceProd",      "ReduceMax",
                            "ReduceMin", "ReduceL1",   "ReduceSumSquare", "ReduceL2"};

void Compare(const char* op, const Tensor& x, const std::vector<int64_t>& axes) {
  const auto count = static_cast<int64_t>(axes.size());
  CheckSameOn("eigen", op, {x, Tensor::From<int64_t>({count}, axes)});
}

TEST_CASE("Every set of axes is reduced as the plain operator does") {
  for (const Shape& shape :
       {Shape{3, 5, 4, 7}, Shape{2, 1, 300, 3}, Shape{0, 2, 3, 2}, Shape{1, 1, 1, 1}})
    for (int mask = 0; mask < 16; ++mask) {
      std::vector<int64_t> axes;
      for (int axis = 0; axis < 4; ++axis)
        if (mask >> axis & 1) axes.push_back(axis);
      for (const char* op : kOps) {
        if (shape.numel() == 0 && std::string_view(op) == "ReduceMean") continue;
        Compare(op, Random(shape, 1), axes);
      }
    }
}

TEST_CASE("Long rows and many of them, on any number of threads") {
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMean"}) {
    Compare(op, Random({500'000}, 1), {0});
    Compare(op, Random({3, 100'000}, 2), {1});
    Compare(op, Random({2000, 130}, 3), {1});
    Compare(op, Random({2000, 130}, 4), {0});
    Compare(op, Random({20, 700, 600}, 5), {1});
    Compare(op, Random({60, 40, 70}, 6), {0, 2});
  }
  CheckSameOn("eigen", "ReduceSum", {Tensor::Scalar(3.f)});
}

TEST_CASE("A long sum loses nothing") {
  for (const Shape& shape : {Shape{3'000'000, 1}, Shape{1'500'000, 2}, Shape{1, 3'000'000}}) {
    const Tensor x = Filled(shape, 0.1f), axes = Tensor::From<int64_t>({2}, {0, 1});
    CHECK(Invoke("ReduceSum", {x, axes}, {}, {.backends = "eigen"})[0].ToVector<float>()[0] ==
          doctest::Approx(300'000.00447).epsilon(1e-5));
  }
  const Tensor columns = Filled({1'000'000, 2}, 0.1f), first = Tensor::From<int64_t>({1}, {0});
  CHECK(Invoke("ReduceSum", {columns, first}, {}, {.backends = "eigen"})[0].ToVector<float>()[1] ==
        doctest::Approx(100'000.00149).epsilon(1e-5));
}

TEST_CASE("Numbers whose sums, squares and products float does not hold") {
  const float inf = std::numeric_limits<float>::infinity(), nan = inf - inf;
  const std::vector<float> rows[] = {{3e19f, 4e19f, 0, 0},
                                     {3e-23f, 4e-23f, 0, 0},
                                     {1e30f, 1e30f, 1e-30f, 1e-30f},
                                     {3e38f, 3e38f, 3e38f, -3e38f},
                                     {1e-30f, 1e-30f, 1e30f, 1e30f},
                                     {0, 0, 0, 0},
                                     {inf, 1, 2, 3},
                                     {1, nan, 2, 3},
                                     {inf, -inf, 1, 2}};
  for (const char* op : kOps)
    for (const std::vector<float>& values : rows) {
      Tensor wide({4, 300}, DType::kFloat32);
      for (int64_t i = 0; i < wide.numel(); ++i)
        wide.mutable_data<float>()[i] =
            i % 300 < 200 ? values[static_cast<size_t>(i / 300)] : 0.25f;
      Compare(op, Tensor::From<float>({4}, values), {0});
      Compare(op, wide, {0});
      Compare(op, wide.Permute({1, 0}).Contiguous(), {1});
    }
  // Too small for Compare.
  const Tensor few = Tensor::From<float>({2}, {3e-23f, 4e-23f});
  for (const Tensor& x : {few, few.View({2, 1}), few.View({1, 2})})
    for (const char* op : {"ReduceL2", "ReduceSumSquare"})
      for (const int64_t axis : {0, 1}) {
        if (axis >= x.rank()) continue;
        const std::vector<Tensor> inputs = {x, Tensor::From<int64_t>({1}, {axis})};
        const auto found = Invoke(op, inputs, {}, {.backends = "eigen"})[0].ToVector<float>();
        const auto expected =
            Invoke(op, inputs, {}, {.backends = "reference"})[0].ToVector<float>();
        for (size_t i = 0; i < found.size(); ++i)
          CHECK(std::abs(found[i] - expected[i]) <= 1e-6f * expected[i]);
      }
}

TEST_CASE("NaN wins over every number") {
  for (int64_t at : {0, 3, 16, 36}) {
    Tensor x = Random({37, 2}, 1);
    x.mutable_data<float>()[2 * at] = std::numeric_limits<float>::quiet_NaN();
    for (const char* op : {"ReduceMax", "ReduceMin"}) {
      Compare(op, x, {0});
      Compare(op, x.Permute({1, 0}).Contiguous(), {1});
      Compare(op, x, {0, 1});
    }
  }
}

TEST_CASE("The reductions keep the promises of their schemas on every backend") {
  for (const char* op : kOps) {
    CheckNode(OperatorDef(op, {"x", "axes"}, {"y"}),
              {Random({3, 4, 5}, 1), Tensor::From<int64_t>({2}, {0, 2})});
  }
}

}  // namespace
}  // namespace reduce_test
