// Unique.
#include "opkit/ops/indexing/unique.hpp"

#include "../data_movement.hpp"

namespace unique_test {
using namespace opkit_tests;

namespace {

std::vector<Tensor> Unique(const Tensor& x, Arguments args = {}) {
  return Invoke("Unique", {x}, std::move(args), {.num_outputs = 4});
}
Ints IntsOf(const Tensor& x) { return x.ToVector<int64_t>(); }

TEST_CASE("elements are sorted, and the other outputs say where they were") {
  const auto y = Unique(Tensor::From<float>({2, 3}, {2, 1, 1, 3, 4, 3}));
  CHECK(FloatsOf(y[0]) == Floats{1, 2, 3, 4});
  CHECK(IntsOf(y[1]) == Ints{1, 0, 3, 4});
  CHECK(IntsOf(y[2]) == Ints{1, 0, 0, 2, 3, 2});
  CHECK(IntsOf(y[3]) == Ints{2, 1, 2, 1});
}

TEST_CASE("unsorted elements stay in the order in which they occur") {
  const auto y = Unique(Tensor::From<int32_t>({6}, {2, 1, 1, 3, 4, 3}), {{"sorted", 0}});
  CHECK(y[0].ToVector<int32_t>() == std::vector<int32_t>{2, 1, 3, 4});
  CHECK(IntsOf(y[1]) == Ints{0, 1, 3, 4});
  CHECK(IntsOf(y[2]) == Ints{0, 1, 1, 2, 3, 2});
  CHECK(IntsOf(y[3]) == Ints{1, 2, 2, 1});
}

TEST_CASE("slices along an axis are compared as lists") {
  const Tensor x = Tensor::From<float>({2, 4}, {1, 0, 1, 0, 5, 7, 5, 6});
  const auto columns = Unique(x, {{"axis", -1}});
  CHECK(columns[0].shape() == Shape{2, 3});
  CHECK(FloatsOf(columns[0]) == Floats{0, 0, 1, 6, 7, 5});
  CHECK(IntsOf(columns[1]) == Ints{3, 1, 0});
  CHECK(IntsOf(columns[2]) == Ints{2, 1, 2, 0});
  CHECK(IntsOf(columns[3]) == Ints{1, 1, 2});
  CHECK(FloatsOf(Unique(x, {{"axis", 0}})[0]) == Floats{1, 0, 1, 0, 5, 7, 5, 6});
}

TEST_CASE("NaNs are equal and last, and zeros of both signs are equal") {
  const float nan = std::nanf("");
  const auto y = Unique(Tensor::From<float>({6}, {nan, 0, -1, nan, -0.f, INFINITY}));
  CHECK(y[0].shape() == Shape{4});
  CHECK(FloatsOf(y[0])[2] == INFINITY);
  CHECK(std::isnan(FloatsOf(y[0])[3]));
  CHECK(IntsOf(y[2]) == Ints{3, 1, 0, 3, 1, 2});
}

TEST_CASE("an output in the middle may be left out, and nothing has nothing unique") {
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({3}, {4, 4, 2});
  CHECK(CreateOperator(OperatorDef("Unique", {"x"}, {"y", "", "", "counts"}), &ws)->Run());
  CHECK(IntsOf(*ws.GetTensor("counts")) == Ints{1, 2});
  CHECK(Unique(Tensor(Shape{0}, DType::kInt8))[0].shape() == Shape{0});
  CHECK(Unique(Counting({2, 0}), {{"axis", 0}})[0].shape() == Shape{1, 0});
}

TEST_CASE("strings are ordered by their bytes") {
  const Tensor x = Tensor::From<std::string>({2, 2}, {"b", "", "a", "b"});
  const auto y = Unique(x);
  CHECK(y[0].ToVector<std::string>() == std::vector<std::string>{"", "a", "b"});
  CHECK(IntsOf(y[1]) == Ints{1, 2, 0});
  CHECK(IntsOf(y[2]) == Ints{2, 0, 1, 2});
  CHECK(IntsOf(y[3]) == Ints{1, 1, 2});
  CHECK(Unique(x, {{"sorted", 0}})[0].ToVector<std::string>() ==
        std::vector<std::string>{"b", "", "a"});
  CHECK(Unique(x, {{"axis", 0}})[0].ToVector<std::string>() ==
        std::vector<std::string>{"a", "b", "b", ""});
}

TEST_CASE("extents that depend on the data are bounded, and wrong inputs refused") {
  CHECK(Inferred("Unique", {{Sym("N"), 3}}, {{"axis", 0}}, 4) ==
        "float32[?, 3] int64[?] int64[N] int64[?]");
  CHECK(Inferred("Unique", {kNoRank}, {}, 2) == "float32[?] int64[?]");
  CHECK(Contains(Refused("Unique", {{4}}, {{"axis", 1}}), "axis 1 is outside"));
  CHECK(ErrorOf([] { Unique(Tensor(Shape{1}, DType::kComplex64)); }).code() ==
        ErrorCode::kTypeMismatch);
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Unique", {"x"}, {"y", "i", "v", "c"}, {{"axis", 1}}),
            {Tensor::From<float>({2, 3, 2}, {1, 2, 1, 2, 0, 1, 3, 4, 3, 4, 0, 1})});
}

}  // namespace
}  // namespace unique_test
