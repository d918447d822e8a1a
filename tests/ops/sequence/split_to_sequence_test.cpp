// SplitToSequence and ConcatFromSequence.
#include "opkit/ops/sequence/split_to_sequence.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace split_to_sequence_test { namespace {

using namespace opkit;
using Floats = std::vector<float>;

Tensor Counting(const Shape& shape) {
  Tensor out(shape, DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = static_cast<float>(i);
  return out;
}
Tensor List(const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values);
}
Tensor Split(const Tensor& x, const Tensor& split, Arguments args = {}) {
  return Invoke("SplitToSequence", {x, split}, std::move(args))[0];
}
std::vector<Shape> ShapesOf(const Tensor& sequence) {
  std::vector<Shape> out;
  for (const Tensor& element : ElementsOf(sequence)) out.push_back(element.shape());
  return out;
}

TEST_CASE("a tensor is split by one extent, by a list, or at every index") {
  const Tensor x = Counting({2, 3});
  const Tensor columns = Split(x, Tensor::Scalar<int64_t>(2), {{"axis", -1}});
  CHECK(ShapesOf(columns) == std::vector<Shape>{{2, 2}, {2, 1}});
  CHECK(ElementsOf(columns)[0].ToVector<float>() == Floats{0, 1, 3, 4});
  CHECK(ShapesOf(Split(x, List({1, 0, 1}))) == std::vector<Shape>{{1, 3}, {0, 3}, {1, 3}});
  CHECK(ShapesOf(Split(x, Tensor())) == std::vector<Shape>{{1, 3}, {1, 3}});
  const Tensor rows = Split(x, Tensor(), {{"keepdims", 0}});
  CHECK(ShapesOf(rows) == std::vector<Shape>{{3}, {3}});
  CHECK(ElementsOf(rows)[1].ToVector<float>() == Floats{3, 4, 5});
  CHECK(ShapesOf(Split(x, List({2}), {{"keepdims", 0}})) == std::vector<Shape>{{2, 3}});
  const auto refused = [&](const Tensor& split, Arguments args = {}) {
    return ErrorOf([&] { Split(x, split, args); }).message();
  };
  CHECK(Contains(refused(List({1, 2})), "whose sum is that of the axis, 2"));
  CHECK(Contains(refused(List({3, -1})), "whose sum is that of the axis, 2"));
  CHECK(Contains(refused(Tensor::Scalar<int64_t>(0)), "'split' is 0, expected 1 or more"));
  CHECK(Contains(refused(Tensor(), {{"axis", 2}}), "axis 2 is outside -2 to 1"));
}

TEST_CASE("the tensors of a sequence are joined along an axis or stacked along a new one") {
  const auto join = [](const Tensor& sequence, Arguments args) {
    return Invoke("ConcatFromSequence", {sequence}, std::move(args))[0];
  };
  const Tensor x = Counting({2, 3});
  const Tensor rows = Split(x, Tensor());
  CHECK(join(rows, {{"axis", 0}}).ToVector<float>() == x.ToVector<float>());
  CHECK(join(rows, {{"axis", 1}}).shape() == Shape{1, 6});
  CHECK(join(rows, {{"axis", 0}, {"new_axis", 1}}).shape() == Shape{2, 1, 3});
  const Tensor last = join(rows, {{"axis", -1}, {"new_axis", 1}});
  CHECK(last.shape() == Shape{1, 3, 2});
  CHECK(last.ToVector<float>() == Floats{0, 3, 1, 4, 2, 5});
  const Tensor words =
      MakeSequence({Tensor::From<std::string>({1}, {"a"}), Tensor::From<std::string>({1}, {"b"})});
  CHECK(join(words, {{"axis", 0}}).ToVector<std::string>() == std::vector<std::string>{"a", "b"});
  const auto refused = [&](const Tensor& sequence, Arguments args) {
    return ErrorOf([&] { join(sequence, args); });
  };
  CHECK(refused(MakeSequence({}), {{"axis", 0}}).code() == ErrorCode::kInvalidArgument);
  CHECK(refused(rows, {{"axis", 2}}).code() == ErrorCode::kOutOfRange);
  CHECK(refused(Split(x, List({2, 0})), {{"axis", 0}, {"new_axis", 1}}).code() ==
        ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace split_to_sequence_test
