// Reshape, Flatten, Squeeze, Unsqueeze.
#include "opkit/ops/reshape.hpp"

#include "data_movement.hpp"
#include "opkit/ops/shape_of.hpp"

namespace reshape_test {
using namespace opkit_tests;

namespace {

TEST_CASE("the elements stay in order") {
  const Tensor x = Counting({2, 3, 4});
  const Tensor y = Invoke("Reshape", {x, List({4, -1})})[0];
  CHECK(y.shape() == Shape{4, 6});
  CHECK(FloatsOf(y) == FloatsOf(x));
  CHECK(Invoke("Flatten", {x}, {{"axis", 2}})[0].shape() == Shape{6, 4});
  CHECK(Invoke("Squeeze", {Counting({1, 2, 1})})[0].shape() == Shape{2});
  CHECK(FloatsOf(Invoke("Unsqueeze", {x, List({0, -1})})[0]) == FloatsOf(x));
}

TEST_CASE("a transposed view is read in its own order") {
  const Tensor x = Counting({2, 3}).Permute({1, 0});
  CHECK(FloatsOf(Invoke("Reshape", {x, List({6})})[0]) == Floats{0, 3, 1, 4, 2, 5});
}

TEST_CASE("tensors of every dtype, empty ones and scalars are reshaped") {
  for (const DType dtype :
       {DType::kBool, DType::kInt8, DType::kUInt16, DType::kFloat16, DType::kFloat64,
        DType::kComplex128, DType::kInt2, DType::kUInt4, DType::kFloat4E2M1, DType::kFloat8E5M2}) {
    const Tensor x = RandomTensor(Shape{3, 5}, dtype);
    const Tensor y = Invoke("Reshape", {x, List({5, 3})})[0];
    CHECK(y.dtype() == dtype);
    CHECK(y.shape() == Shape{5, 3});
    CHECK(detail::SameBytes(y, x));
  }
  CHECK(Invoke("Reshape", {Counting({0, 3}), List({3, 0})}, {{"allowzero", 1}})[0].shape() ==
        Shape{3, 0});
  CHECK(Invoke("Reshape", {Counting({0, 3}), List({0, -1})})[0].shape() == Shape{0, 3});
  CHECK(Invoke("Reshape", {Counting({1}), List({})})[0].shape() == Shape{});
  CHECK(Invoke("Flatten", {Counting({})}, {{"axis", 0}})[0].shape() == Shape{1, 1});
  CHECK(Invoke("Unsqueeze", {Counting({}), List({0})})[0].shape() == Shape{1});
}

TEST_CASE("Reshape infers the extents that follow from the known ones") {
  const SymbolicShape n34 = {Sym("N"), 3, 4};
  CHECK(Inferred("Reshape", {n34, List({0, -1})}) == "float32[N, 12]");
  CHECK(Inferred("Reshape", {n34, List({-1, 12})}) == "float32[N, 12]");
  CHECK(Inferred("Reshape", {n34, List({-1, 3, 2, 2})}) == "float32[N, 3, 2, 2]");
  CHECK(Inferred("Reshape", {n34, List({-1, 6})}) == "float32[?, 6]");
  CHECK(Inferred("Reshape", {n34, List({-1, 5})}) == "float32[?, 5]");
  CHECK(Inferred("Reshape", {n34, List({2, 6})}) == "float32[2, 6]");
  CHECK(Inferred("Reshape", {{Sym("N"), Dim(), 4}, List({0, 0, 2, -1})}) == "float32[N, ?, 2, 2]");
  CHECK(Inferred("Reshape", {{Sym("N"), Sym("M")}, List({-1})}) == "float32[?]");
  CHECK(Inferred("Reshape", {kNoRank, List({0, -1, 5})}) == "float32[?, ?, 5]");
  const SymbolicShape bounded{Dim::AtMost(5), 3, Dim::AtMost(2)};
  CHECK(Inferred("Reshape", {bounded, List({-1})}) == "float32[<=30]");
  CHECK(Inferred("Reshape", {bounded, List({-1, 3})}) == "float32[<=10, 3]");
  CHECK(Inferred("Reshape", {bounded, List({4, -1})}) == "float32[4, <=7]");
  CHECK(Inferred("Reshape", {bounded, List({0, -1})}) == "float32[<=5, <=6]");
  CHECK(Inferred("Flatten", {bounded}) == "float32[<=5, <=6]");
  CHECK(Inferred("Reshape", {n34, {DType::kInt64, {2}}}) == "float32[?, ?]");
  CHECK(Inferred("Reshape", {n34, {DType::kInt64, {Dim()}}}) == "float32[rank unknown]");
  CHECK(Inferred("Reshape", {{2, 3}, List({0, 3})}, {{"allowzero", 0}}) == "float32[2, 3]");
}

TEST_CASE("Reshape to a shape that nothing was written to is an Error") {
  Workspace ws;
  *ws.CreateTensor("x") = Counting({2});
  ws.CreateTensor("shape");
  const auto reshape = CreateOperator(OperatorDef("Reshape", {"x", "shape"}, {"y"}), &ws);
  CHECK(ErrorOf([&] { reshape->Run(); }).code() == opkit::ErrorCode::kUninitialized);
}

TEST_CASE("Reshape names the shapes that do not fit") {
  CHECK(Refused("Reshape", {{2, 3}, List({4, -1})}) ==
        "Reshape: a tensor of shape [2, 3] cannot be reshaped to [4, -1]: the element count is "
        "not a multiple of the given extents");
  CHECK(Refused("Reshape", {{2, 3}, List({5})}) ==
        "Reshape: a tensor of shape [2, 3] cannot be reshaped to [5]: the element counts differ");
  CHECK(Refused("Reshape", {{2, 3}, List({0, 0, 0})}) ==
        "Reshape: the 0 at index 2 of the shape [0, 0, 0] copies an extent of the input, but the "
        "input has shape [2, 3]");
  CHECK(Refused("Reshape", {{2, 3}, List({-1, -1})}) ==
        "Reshape: the shape [-1, -1] has more than one -1");
  CHECK(Contains(Refused("Reshape", {{2, 3}, List({-2, 3})}), "has the extent -2"));
  CHECK(Contains(Refused("Reshape", {{0, 3}, List({0, -1})}, {{"allowzero", 1}}),
                 "-1 could be any number"));
  CHECK(Refused("Reshape", {{2, 3}, {DType::kInt64, {2, 3}}}) ==
        "shape must be a list of integers, found shape [2, 3]");
  CHECK(Contains(Refused("Reshape", {{2}, Tensor::From<float>({1}, {2})}),
                 "input 1 'shape' is float32[1], expected one of [int64"));
  const int64_t huge = int64_t{1} << 40;
  CHECK(Contains(Refused("Reshape", {{2, 3}, List({huge, huge})}), "64-bit count"));
  CHECK(ErrorOf([] {
          Invoke("Reshape", {Counting({2, 3}), List({7})});
        }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("Flatten infers the products before and behind its axis") {
  CHECK(Inferred("Flatten", {{Sym("N"), 3, 4}}) == "float32[N, 12]");
  CHECK(Inferred("Flatten", {{Sym("N"), 3, 4}}, {{"axis", 0}}) == "float32[1, ?]");
  CHECK(Inferred("Flatten", {{Sym("N"), 3, 4}}, {{"axis", 3}}) == "float32[?, 1]");
  CHECK(Inferred("Flatten", {{Sym("N"), 1, 4}}, {{"axis", -1}}) == "float32[N, 4]");
  CHECK(Inferred("Flatten", {kNoRank}) == "float32[?, ?]");
  CHECK(Inferred("Flatten", {{Dim(), 0, 4}}, {{"axis", 2}}) == "float32[0, 4]");
  CHECK(Refused("Flatten", {{2, 3}}, {{"axis", 3}}) ==
        "Flatten: axis 3 is outside a tensor of rank 2, expected -2 to 1");
}

TEST_CASE("Squeeze infers the axes that stay, and drops none but those of 1") {
  CHECK(Inferred("Squeeze", {{1, Sym("N"), 1}, List({0, -1})}) == "float32[N]");
  CHECK(Inferred("Squeeze", {{1, Sym("N"), 1}}) == "float32[rank unknown]");
  CHECK(Inferred("Squeeze", {{1, 2, 1}}) == "float32[2]");
  CHECK(Inferred("Squeeze", {{Sym("N"), 2}, List({0})}) == "float32[2]");
  CHECK(Inferred("Squeeze", {{1, 2, 1}, {DType::kInt64, {2}}}) == "float32[?]");
  CHECK(Refused("Squeeze", {{1, 2}, List({1})}) ==
        "Squeeze: axis 1 of shape [1, 2] has extent 2, and only an extent of 1 can be left out");
  CHECK(Refused("Squeeze", {{1, 2}, List({0, -2})}) ==
        "Squeeze: axis -2 is named twice in [0, -2]");
}

TEST_CASE("Unsqueeze infers an axis of 1 at each place that is named") {
  CHECK(Inferred("Unsqueeze", {{Sym("N"), 2}, List({3, 0})}) == "float32[1, N, 2, 1]");
  CHECK(Inferred("Unsqueeze", {{Sym("N"), 2}, List({-1})}) == "float32[N, 2, 1]");
  CHECK(Inferred("Unsqueeze", {{2}, {DType::kInt64, {2}}}) == "float32[?, ?, ?]");
  CHECK(Inferred("Unsqueeze", {kNoRank, List({0})}) == "float32[rank unknown]");
  CHECK(Refused("Unsqueeze", {{2}, List({2})}) ==
        "Unsqueeze: axis 2 is outside a tensor of rank 2, expected -2 to 1");
  CHECK(Contains(Refused("Unsqueeze", {{2}, {DType::kInt64, {int64_t{1} << 40}}}), "rank"));
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  CheckNode(OperatorDef("Reshape", {"x", "shape"}, {"y"}), {Counting({2, 6}), List({3, -1})});
  CheckNode(OperatorDef("Flatten", {"x"}, {"y"}), {Counting({2, 3, 2})});
  CheckNode(OperatorDef("Squeeze", {"x", "axes"}, {"y"}), {Counting({2, 1, 3}), List({1})});
  CheckNode(OperatorDef("Unsqueeze", {"x", "axes"}, {"y"}), {Counting({2, 3}), List({1})});
  CHECK(HasGradient("Reshape"));
}

}  // namespace
}  // namespace reshape_test
