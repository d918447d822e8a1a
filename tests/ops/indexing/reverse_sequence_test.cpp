// ReverseSequence.
#include "opkit/ops/indexing/reverse_sequence.hpp"

#include "../data_movement.hpp"

namespace reverse_sequence_test {
using namespace opkit_tests;

namespace {

Floats Reverse(const Tensor& x, const Ints& lengths, int64_t batch_axis) {
  return FloatsOf(Invoke("ReverseSequence", {x, List(lengths)},
                         {{"batch_axis", batch_axis}, {"time_axis", 1 - batch_axis}})[0]);
}

TEST_CASE("the first steps of each sequence are reversed") {
  CHECK(Reverse(Counting({2, 3}), {2, 3}, 0) == Floats{1, 0, 2, 5, 4, 3});
  CHECK(Reverse(Counting({3, 2}), {2, 3}, 1) == Floats{2, 5, 0, 3, 4, 1});
  CHECK(Reverse(Counting({2, 2, 2}), {2, 0}, 0) == Floats{2, 3, 0, 1, 4, 5, 6, 7});
}

TEST_CASE("wrong axes and lengths are refused") {
  const Known lengths(DType::kInt64, {2});
  CHECK(Inferred("ReverseSequence", {{Sym("T"), 2, 5}, lengths}) == "float32[T, 2, 5]");
  CHECK(Contains(Refused("ReverseSequence", {{3, 2}, lengths}, {{"time_axis", 1}}),
                 "expected 0 and 1, or 1 and 0"));
  CHECK(Contains(Refused("ReverseSequence", {{3}, lengths}), "an input of rank 2 or more"));
  CHECK(Contains(Refused("ReverseSequence", {{2, 3}, lengths}), "a length for each sequence"));
  CHECK(Contains(ErrorOf([] {
                   Reverse(Counting({2, 3}), {1, 4}, 0);
                 }).message(),
                 "ReverseSequence: length 1 is 4, expected 0 to 3"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("ReverseSequence", {"x", "l"}, {"y"}), {Counting({3, 2, 2}), List({2, 3})});
  CHECK(HasGradient("ReverseSequence"));
}

}  // namespace
}  // namespace reverse_sequence_test
