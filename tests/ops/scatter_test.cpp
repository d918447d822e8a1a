// ScatterElements and ScatterND.
#include "opkit/ops/scatter.hpp"

#include "data_movement.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/indexing/gather_nd.hpp"

namespace scatter_test {
using namespace opkit_tests;

namespace {

Floats Scatter(const Tensor& data, const Tensor& indices, const Tensor& updates,
               const std::string& reduction = "none") {
  return FloatsOf(Invoke("ScatterND", {data, indices, updates}, {{"reduction", reduction}})[0]);
}

TEST_CASE("slices are written at their indices") {
  const Tensor x = Counting({4});
  const Tensor places = Tensor::From<int64_t>({2, 1}, {3, -3});
  CHECK(Scatter(x, places, Tensor::From<float>({2}, {9, 8})) == Floats{0, 8, 2, 9});
  CHECK(FloatsOf(x) == Floats{0, 1, 2, 3});
  CHECK(Scatter(Counting({2, 3}), Tensor::From<int64_t>({1, 1}, {1}),
                Tensor::From<float>({1, 3}, {7, 8, 9})) == Floats{0, 1, 2, 7, 8, 9});
  CHECK(Scatter(Counting({2, 2}), Tensor::From<int64_t>({2}, {0, 1}), Tensor::Scalar(5.f)) ==
        Floats{0, 5, 2, 3});
  CHECK(Scatter(x, Tensor(Shape{0, 1}, DType::kInt64), Tensor(Shape{0}, DType::kFloat32)) ==
        FloatsOf(x));
}

TEST_CASE("the same place is met one update after the other") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const Tensor twice = Tensor::From<int64_t>({2, 1}, {1, 1});
  const Tensor updates = Tensor::From<float>({2}, {5, 3});
  CHECK(Scatter(x, twice, updates) == Floats{1, 3});
  CHECK(Scatter(x, twice, updates, "add") == Floats{1, 10});
  CHECK(Scatter(x, twice, updates, "mul") == Floats{1, 30});
  CHECK(Scatter(x, twice, updates, "max") == Floats{1, 5});
  CHECK(Scatter(x, twice, updates, "min") == Floats{1, 2});
  const Tensor wrapped =
      Invoke("ScatterND",
             {Tensor::From<int8_t>({1}, {127}), Tensor::From<int64_t>({1, 1}, {0}),
              Tensor::From<int8_t>({1}, {1})},
             {{"reduction", "add"}})[0];
  CHECK(wrapped.ToVector<int8_t>() == std::vector<int8_t>{-128});
}

TEST_CASE("the larger and the smaller of a NaN and a number are NaN, as in Max and ReduceMax") {
  const Tensor x = Tensor::From<float>({3}, {NAN, 2, 3});
  const Tensor updates = Tensor::From<float>({3}, {1, NAN, 4});
  for (const char* reduction : {"max", "min"}) {
    const Floats y = Scatter(x, Tensor::From<int64_t>({3, 1}, {0, 1, 2}), updates, reduction);
    CHECK(std::isnan(y[0]));
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == (reduction == std::string("max") ? 4 : 3));
  }
}

TEST_CASE("updates of nothing take no time, however many there are") {
  const int64_t many = int64_t{1} << 40;
  const Tensor data({0, 2}, DType::kFloat32), indices({many, 0}, DType::kInt64);
  const Tensor updates({many, 0, 2}, DType::kFloat32);
  CHECK(Scatter(data, indices, updates) == Floats{});
}

TEST_CASE("the output has the data's shape, and updates that do not fit are refused") {
  const Known indices(DType::kInt64, {2, 1});
  CHECK(Inferred("ScatterND", {{Sym("N"), 3}, indices, {2, 3}}) == "float32[N, 3]");
  CHECK(Refused("ScatterND", {{4, 3}, indices, {2, 4}}) ==
        "ScatterND: data [4, 3], indices [2, 1], updates [2, 4]: expected updates of shape [2, 3]");
  CHECK(Contains(Refused("ScatterND", {{4}, {DType::kInt64, {2, 2}}, {2}}), "at most the rank"));
  CHECK(Contains(Refused("ScatterND", {{4}, {DType::kInt32, {2, 1}}, {2}}),
                 "expected one of [int64]"));
  CHECK(Contains(Refused("ScatterND", {{4}, indices, {DType::kInt8, {2}}}),
                 "is int8[2], expected dtype float32"));
  CHECK(Contains(ErrorOf([] { Scatter(Counting({4}), List({4}), Tensor::Scalar(1.f)); }).message(),
                 "ScatterND: index 4 is outside axis 0 of extent 4"));
  CHECK(Contains(
      ErrorOf([] { Scatter(Counting({4}), List({0}), Tensor::Scalar(1.f), "sum"); }).message(),
      "argument 'reduction' of ScatterND is 'sum', which is none of its values (known: 'none', "
      "'add', "
      "'mul', 'max', 'min')"));
}

TEST_CASE("ScatterElements writes elements along an axis, one after the other") {
  const auto scatter = [](const Tensor& data, const Tensor& indices, const Floats& updates,
                          int64_t axis, const char* reduction = "none") {
    return FloatsOf(Invoke("ScatterElements",
                           {data, indices, Tensor::From<float>(indices.shape(), updates)},
                           {{"axis", axis}, {"reduction", reduction}})[0]);
  };
  const Tensor x = Counting({2, 3});
  CHECK(scatter(x, Tensor::From<int64_t>({2, 1}, {2, -3}), {8, 9}, 1) == Floats{0, 1, 8, 9, 4, 5});
  CHECK(scatter(x, Tensor::From<int32_t>({1, 2}, {1, 0}), {8, 9}, -2) == Floats{0, 9, 2, 8, 4, 5});
  const Tensor twice = Tensor::From<int64_t>({1, 2}, {1, 1});
  CHECK(scatter(x, twice, {5, 3}, 1) == Floats{0, 3, 2, 3, 4, 5});
  CHECK(scatter(x, twice, {5, 3}, 1, "add") == Floats{0, 9, 2, 3, 4, 5});
  CHECK(scatter(x, twice, {5, 3}, 1, "mul") == Floats{0, 15, 2, 3, 4, 5});
  CHECK(scatter(x, twice, {5, 3}, 1, "max") == Floats{0, 5, 2, 3, 4, 5});
  CHECK(scatter(x, twice, {5, 0}, 1, "min") == Floats{0, 0, 2, 3, 4, 5});
  CHECK(Contains(ErrorOf([&] {
                   scatter(x, twice, {1, 1}, 1);
                   scatter(x, Tensor::From<int64_t>({1, 1}, {3}), {1}, 1);
                 }).message(),
                 "ScatterElements: index 3 is outside an axis of extent 3"));
  const Known indices(DType::kInt64, {1, 2});
  CHECK(Inferred("ScatterElements", {{Sym("N"), 3}, indices, {1, 2}}) == "float32[N, 3]");
  CHECK(Contains(Refused("ScatterElements", {{3}, indices, {1, 2}}), "expected the same rank"));
  CHECK(Contains(Refused("ScatterElements", {{1, 1}, indices, {1, 2}}), "no larger extents"));
  CHECK(!Refused("ScatterElements", {{2, 3}, indices, {2, 2}}).empty());
}

TEST_CASE("the operator keeps the promises of its schema, in place too") {
  CheckNode(OperatorDef("ScatterND", {"x", "i", "u"}, {"y"}, {{"reduction", "add"}}),
            {Counting({3, 2}), Tensor::From<int64_t>({2, 1}, {2, 0}), Counting({2, 2})});
  CheckNode(OperatorDef("ScatterElements", {"x", "i", "u"}, {"y"}, {{"reduction", "mul"}}),
            {Counting({3, 2}), Tensor::From<int64_t>({2, 2}, {2, 0, 2, 1}), Counting({2, 2})},
            {.compare = {.gradient = false}});
}

TEST_CASE("gradients of data and updates, with and without sums") {
  const Tensor x = RandomTensor({2, 3}, DType::kFloat32, 1);
  const Tensor u = RandomTensor({2, 2}, DType::kFloat32, 2);
  const Tensor rows = RandomTensor({2, 3}, DType::kFloat32, 3);
  for (const char* reduction : {"none", "add"}) {
    CAPTURE(reduction);
    CheckNode(OperatorDef("ScatterElements", {"x", "i", "u"}, {"y"},
                          {{"axis", 1}, {"reduction", reduction}}),
              {x, Tensor::From<int64_t>({2, 2}, {2, 0, 1, -1}), u});
    CheckNode(OperatorDef("ScatterND", {"x", "i", "u"}, {"y"}, {{"reduction", reduction}}),
              {x, Tensor::From<int64_t>({2, 1}, {1, 0}), rows});
  }
  CHECK(Contains(ErrorOf([] {
                   GetGradientForOp(
                       OperatorDef("ScatterND", {"x", "i", "u"}, {"y"}, {{"reduction", "mul"}}),
                       {GradientValue("g")});
                 }).message(),
                 "ScatterND has a gradient only with reduction=none or add"));
}

}  // namespace
}  // namespace scatter_test
