// Compress.
#include "opkit/ops/indexing/compress.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/ops/shape_of.hpp"

namespace compress_test {
using namespace opkit_tests;

namespace {

Tensor Bools(const std::vector<bool>& values) {
  Tensor out(Shape{static_cast<int64_t>(values.size())}, DType::kBool);
  for (size_t i = 0; i < values.size(); ++i)
    static_cast<uint8_t*>(out.raw_mutable_data())[i] = values[i];
  return out;
}
Tensor Compress(const Tensor& x, const std::vector<bool>& kept, Arguments args = {}) {
  return Invoke("Compress", {x, Bools(kept)}, std::move(args))[0];
}

TEST_CASE("slices stay where the condition is true") {
  const Tensor x = Counting({3, 2});
  const Tensor rows = Compress(x, {false, true, true}, {{"axis", 0}});
  CHECK(rows.shape() == Shape{2, 2});
  CHECK(FloatsOf(rows) == Floats{2, 3, 4, 5});
  CHECK(FloatsOf(Compress(x, {false, true}, {{"axis", -1}})) == Floats{1, 3, 5});
  CHECK(Compress(x, {false, false}, {{"axis", 1}}).shape() == Shape{3, 0});
  CHECK(Compress(x, {}, {{"axis", 0}}).shape() == Shape{0, 2});
}

TEST_CASE("without an axis the elements are a list, and a short condition ends early") {
  CHECK(FloatsOf(Compress(Counting({3, 2}), {false, true, false, false, true})) == Floats{1, 4});
}

TEST_CASE("the kept extent is unknown before the run, and wrong inputs are refused") {
  const Known condition(DType::kBool, {3});
  CHECK(Inferred("Compress", {{Sym("N"), 3}, condition}, {{"axis", 1}}) == "float32[N, ?]");
  CHECK(Contains(Refused("Compress", {{4}, {DType::kBool, {2, 2}}}), "expected rank 1"));
  CHECK(Contains(Refused("Compress", {{4}, condition}, {{"axis", 1}}), "axis 1 is outside"));
  CHECK(Contains(ErrorOf([] {
                   Compress(Counting({2}), {true, false, true});
                 }).message(),
                 "Compress: the condition is true at index 2, outside an axis of extent 2"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Compress", {"x", "c"}, {"y"}, {{"axis", 1}}),
            {Counting({2, 3, 2}), Bools({true, false, true})});
  CheckNode(OperatorDef("Compress", {"x", "c"}, {"y"}),
            {Counting({2, 3}), Bools({true, false, true, true})});
  CHECK(HasGradient("Compress"));
}

}  // namespace
}  // namespace compress_test
