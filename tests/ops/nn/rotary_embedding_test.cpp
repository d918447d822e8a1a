// RotaryEmbedding.
#include "opkit/ops/nn/rotary_embedding.hpp"

#include "../data_movement.hpp"

namespace rotary_embedding_test {
using namespace opkit_tests;

namespace {

// Position 0 does not rotate, position 1 rotates by a quarter of a turn: (a, b) to (-b, a).
const Tensor kCosines = Tensor::From<float>({2, 1}, {1, 0});
const Tensor kSines = Tensor::From<float>({2, 1}, {0, 1});

Floats Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("RotaryEmbedding", inputs, std::move(args))[0]);
}
Tensor Positions(const Ints& values) {
  return Tensor::From<int64_t>({1, static_cast<int64_t>(values.size())}, values);
}

TEST_CASE("pairs rotate by the angle of their position") {
  const Tensor x = Tensor::From<float>({1, 1, 2, 2}, {1, 2, 3, 4});
  CHECK(Run({x, kCosines, kSines, Positions({0, 1})}) == Floats{1, 2, -4, 3});
  CHECK(Run({x, kCosines, kSines, Positions({1, 0})}) == Floats{-2, 1, 3, 4});
  const Tensor cosines = Tensor::From<float>({1, 2, 1}, {0, 1});
  const Tensor sines = Tensor::From<float>({1, 2, 1}, {1, 0});
  CHECK(Run({x, cosines, sines}) == Floats{-2, 1, 3, 4});
}

TEST_CASE("a pair is one element of each half, or two neighbours") {
  const Tensor x = Tensor::From<float>({1, 1, 1, 4}, {1, 2, 3, 4});
  const Tensor cosines = Tensor::From<float>({1, 1, 2}, {0, 0});
  const Tensor sines = Tensor::From<float>({1, 1, 2}, {1, 1});
  CHECK(Run({x, cosines, sines}) == Floats{-3, -4, 1, 2});
  CHECK(Run({x, cosines, sines}, {{"interleaved", 1}}) == Floats{-2, 1, -4, 3});
}

TEST_CASE("rank 3 has heads side by side, and later elements may stay") {
  const Tensor x = Tensor::From<float>({1, 2, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(Run({x, kCosines, kSines, Positions({1, 0})},
            {{"num_heads", 2}, {"rotary_embedding_dim", 2}}) ==
        Floats{-2, 1, 3, -5, 4, 6, 7, 8, 9, 10, 11, 12});
}

TEST_CASE("wrong shapes and positions are refused") {
  const Known x{Sym("N"), 3, 5, 4}, cache{9, 2}, positions(DType::kInt64, {Sym("N"), 5});
  CHECK(Inferred("RotaryEmbedding", {x, cache, cache, positions}) == "float32[N, 3, 5, 4]");
  CHECK(Contains(Refused("RotaryEmbedding", {x, cache, cache}), "[batch, steps, 2]"));
  CHECK(Contains(Refused("RotaryEmbedding", {x, {9, 3}, cache, positions}), "[positions, 2]"));
  CHECK(Contains(Refused("RotaryEmbedding", {{1, 5, 6}, cache, cache}), "rank 3 and num_heads"));
  CHECK(Contains(
      Refused("RotaryEmbedding", {x, cache, cache, positions}, {{"rotary_embedding_dim", 3}}),
      "an even number"));
  CHECK(Contains(ErrorOf([] {
                   Run({Counting({1, 1, 1, 2}), kCosines, kSines, Positions({2})});
                 }).message(),
                 "position 2 is outside the caches of 2 positions"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("RotaryEmbedding", {"x", "c", "s", "p"}, {"y"}),
            {Counting({1, 2, 2, 2}), kCosines, kSines, Positions({1, 0})});
  CHECK(HasGradient("RotaryEmbedding"));
}

}  // namespace
}  // namespace rotary_embedding_test
