// The pools of the "eigen" backend: the same as the plain operators.
#include <doctest/doctest.h>

#include <algorithm>

#include "opkit/backends/eigen/pool.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace pool_test {
using namespace opkit;

namespace {

void Compare(const Tensor& x, const Arguments& args) {
  CheckSameOn("eigen", "MaxPool", {x}, args);
  for (int64_t include : {0, 1}) {
    Arguments with = args;
    with.Set("count_include_pad", include);
    CheckSameOn("eigen", "AveragePool", {x}, with);
  }
}

TEST_CASE("Windows that models use are pooled as the plain operator does") {
  Compare(Random({1, 5, 30, 41}, 1),
          {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  Compare(Random({1, 5, 28, 28}, 2), {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  Compare(Random({1, 9, 13, 13}, 3),
          {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", 1}});
  Compare(Random({1, 5, 14, 14}, 4), {{"kernel_shape", Ints{3, 3}}, {"auto_pad", "SAME_UPPER"}});
  Compare(Random({1, 30, 3, 80}, 5), {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{3, 2}}});
  Compare(Random({2, 3, 2, 1}, 8),
          {{"kernel_shape", Ints{3, 4}}, {"strides", Ints{2, 4}}, {"ceil_mode", 1}});
  Compare(Random({2, 3, 1000}, 6), {{"kernel_shape", Ints{5}}, {"strides", Ints{4}}});
  Compare(Random({1, 3, 300, 301}, 7), {{"kernel_shape", Ints{7, 7}}});
}

TEST_CASE("Pools of many small planes are cut for threads, pools of few are not") {
  const auto chunks = [](int64_t channels) {
    const WindowAttributes attributes(
        OperatorDef("AveragePool").Arg("kernel_shape", Ints{3, 3}).Arg("strides", Ints{2, 2}));
    const detail::PoolPlan plan({attributes.At(0, 15, 3), attributes.At(1, 15, 3)}, channels,
                                false);
    return (plan.tasks - 1) / plan.grain + 1;
  };
  CHECK(chunks(272) >= 4);  // 95 us on one thread
  CHECK(chunks(20) == 1);
}

TEST_CASE("Random windows are pooled as the plain operator does") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 engine(seed);
    auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(engine() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t spatial = draw(1, 4);
    Ints x = {draw(1, 2), draw(1, 6)}, kernel, strides, dilations, begin, end;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      kernel.push_back(draw(1, 4));
      dilations.push_back(draw(1, 3));
      strides.push_back(draw(1, 3));
      begin.push_back(draw(0, 3));
      end.push_back(draw(0, 3));
      x.push_back((kernel.back() - 1) * dilations.back() + draw(1, axis + 1 < spatial ? 8 : 40));
    }
    begin.insert(begin.end(), end.begin(), end.end());
    INFO("seed ", seed);
    Compare(Random(Shape(x), seed), {{"kernel_shape", kernel},
                                     {"strides", strides},
                                     {"dilations", dilations},
                                     {"pads", begin},
                                     {"ceil_mode", draw(0, 1)}});
  }
}

TEST_CASE("A window in pads alone, NaN and infinity, and nothing") {
  Compare(Random({1, 1, 1}, 1),
          {{"kernel_shape", Ints{2}}, {"dilations", Ints{2}}, {"pads", Ints{1, 1}}});
  Compare(Random({0, 3, 9, 9}, 1), {{"kernel_shape", Ints{2, 2}}});
  Tensor x = Random({1, 1, 40}, 1);
  x.mutable_data<float>()[7] = NAN;
  x.mutable_data<float>()[20] = -INFINITY;
  x.mutable_data<float>()[21] = -INFINITY;
  CheckSameOn("eigen", "MaxPool", {x}, {{"kernel_shape", Ints{2}}});
  CheckSameOn("eigen", "GlobalMaxPool", {x});
}

TEST_CASE("One window along an axis of one element may read its pad alone") {
  Compare(Random({1, 1, 1, 4}, 1),
          {{"kernel_shape", Ints{1, 2}}, {"pads", Ints{1, 0, 0, 0}}, {"strides", Ints{2, 1}}});
  Compare(Random({1, 2, 1, 3, 4}, 1), {{"kernel_shape", Ints{1, 2, 2}},
                                       {"pads", Ints{1, 0, 0, 0, 0, 0}},
                                       {"strides", Ints{2, 1, 1}}});
  Compare(Random({1, 1, 1}, 1),
          {{"kernel_shape", Ints{1}}, {"pads", Ints{1, 0}}, {"strides", Ints{2}}});
}

TEST_CASE("Windows whose copies would fill the memory are left to the plain operator") {
  const int64_t apart = 1 << 20;
  const Tensor x = Random({1, 1, 4, 4}, 1);
  const Arguments wide = {{"kernel_shape", Ints{2, 2}},
                          {"dilations", Ints{apart, apart}},
                          {"pads", Ints(4, apart / 2)}};
  const Arguments deep = {{"kernel_shape", Ints(4, 1 << 15)}, {"pads", Ints(8, 1 << 14)}};
  CHECK_FALSE(IsTakenBy("eigen", "MaxPool", {x}, wide, 1));
  CHECK_FALSE(IsTakenBy("eigen", "MaxPool", {Random({1, 1, 4, 4, 4, 4}, 1)}, deep, 1));
  CheckClose(Invoke("MaxPool", {x}, wide, {.backends = "eigen,reference", .num_outputs = 1})[0],
             Invoke("MaxPool", {x}, wide, {.backends = "reference", .num_outputs = 1})[0]);
}

TEST_CASE("A proposal for an image of any length takes no memory in proportion to it") {
  const TensorInfo image(DType::kFloat32, Shape{1, 1, int64_t{1} << 40, 3});
  for (const char* pool : {"MaxPool", "AveragePool"}) {
    const OperatorDef def(pool, {"x"}, {"y"}, {{"kernel_shape", Ints{1, 1}}});
    const auto all = KernelCandidates(def, {&image, 1}, {&image, 1});
    REQUIRE(all[0].backend == "eigen");
    CHECK(all[0].dropped.empty());
    CHECK(all[0].config.scratch_bytes > 0);
    CHECK(all[0].config.scratch_bytes < 10'000'000);
  }
}

TEST_CASE("The same plane has the same average wherever it lies in memory") {
  constexpr int64_t kPlanes = 19;
  for (const int64_t side : {1, 3, 13, 15, 61}) {
    CAPTURE(side);
    const Tensor plane = Random({side, side}, 7);
    Tensor x({1, kPlanes, side, side}, DType::kFloat32);
    for (int64_t c = 0; c < kPlanes; ++c)
      std::copy_n(plane.data<float>(), plane.numel(), x.mutable_data<float>() + c * plane.numel());
    const Tensor y =
        Invoke("GlobalAveragePool", {x}, {}, {.backends = "eigen", .num_outputs = 1})[0];
    for (int64_t c = 1; c < kPlanes; ++c) CHECK(y.data<float>()[c] == y.data<float>()[0]);
  }
}

TEST_CASE("Global pools agree with the plain operator in every shape") {
  for (const Shape& shape : {Shape{1, 240, 6, 80}, Shape{2, 3, 5}, Shape{1, 7, 1, 1}, Shape{3, 4},
                             Shape{0, 4, 3}, Shape{2, 1, 3, 4, 70}}) {
    CheckSameOn("eigen", "GlobalAveragePool", {Random(shape, 1)});
    CheckSameOn("eigen", "GlobalMaxPool", {Random(shape, 1)});
  }
}

TEST_CASE("The mean of a large plane loses nothing, and that of large numbers is finite") {
  CheckSameOn("eigen", "GlobalAveragePool", {Filled({1, 1, 2048, 2048}, 0.1f)});
  CheckSameOn("eigen", "GlobalAveragePool", {Filled({1, 2, 5, 9}, 3e38f)});
}

TEST_CASE("Indices are left to the plain operator") {
  const Tensor x = Random({1, 2, 9}, 1);
  const auto found = Invoke("MaxPool", {x}, {{"kernel_shape", Ints{3}}},
                            {.backends = "eigen,reference", .num_outputs = 2});
  CHECK(found[1].dtype() == DType::kInt64);
  Workspace ws;
  *ws.CreateTensor("x") = x;
  const OperatorDef def =
      OperatorDef("MaxPool", {"x"}, {"y", "i"}, {{"kernel_shape", Ints{3}}}).Backends("eigen");
  CHECK(Contains(ErrorOf([&] { CreateOperator(def, &ws)->Run(); }).message(),
                 "does not find indices"));
}

TEST_CASE("The pools keep the promises of their schemas on every kernel") {
  const Arguments args = {
      {"kernel_shape", Ints{3, 2}}, {"pads", Ints{1, 0, 1, 1}}, {"strides", Ints{2, 1}}};
  CheckOptions options;
  options.compare.bitwise_threads = true;
  options.compare.gradient = false;  // ops_test checks it, on smaller images
  for (const char* op : {"AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"}) {
    const OperatorDef def(op, {"x"}, {"y"}, op[0] == 'G' ? Arguments() : args);
    CheckNode(def, {Random({2, 30, 41, 43}, 1)}, options);
  }
}

}  // namespace
}  // namespace pool_test
