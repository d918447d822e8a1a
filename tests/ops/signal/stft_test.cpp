// STFT.
#include "opkit/ops/signal/stft.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/all.hpp"

namespace stft_test {
using namespace opkit_tests;

namespace {

const Tensor kNone;

Floats Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("STFT", inputs, std::move(args))[0]);
}

TEST_CASE("STFT transforms frames times a window") {
  const Tensor x = Tensor::From<float>({1, 5, 1}, {1, 2, 3, 5, 8});
  // Frames [1, 2], [3, 5].
  CHECK(Run({x, Tensor::Scalar<int64_t>(2), kNone, List({2})}) == Floats{3, 0, -1, 0, 8, 0, -2, 0});
  const Tensor window = Vector({1, 10});
  CHECK(Run({x, List({3}), window}) == Floats{21, 0, -19, 0, 85, 0, -75, 0});
  CHECK(Run({x, List({3}), window, List({2})}) == Run({x, List({3}), window}));
}

TEST_CASE("complex signals have spectra of all frequencies") {
  const Tensor x = Tensor::From<float>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 9});
  CHECK(Run({x, List({1}), kNone, List({2})}, {{"onesided", 0}}) ==
        Floats{4, 6, -2, -2, 12, 15, -2, -3});
}

TEST_CASE("shapes of STFT are inferred, and wrong ones refused") {
  const Known x{Sym("N"), 100, 1};
  CHECK(Inferred("STFT", {x, List({10}), {16}}) == "float32[N, 9, 9, 2]");
  CHECK(Inferred("STFT", {x, List({10}), {16}}, {{"onesided", 0}}) == "float32[N, 9, 16, 2]");
  CHECK(Inferred("STFT", {x, Known(DType::kInt64, SymbolicShape(Shape{})), kLeftOut, List({7})}) ==
        "float32[N, ?, 4, 2]");
  CHECK(Contains(Refused("STFT", {x, List({10})}), "a window or a frame_length"));
  CHECK(Contains(Refused("STFT", {x, List({10}), {16}, List({15})}), "window has shape [16]"));
  CHECK(Contains(Refused("STFT", {x, List({0}), {16}}), "frame_step is 0"));
  CHECK(Contains(Refused("STFT", {x, List({1}), {101}}), "less than a frame of 101"));
  CHECK(Contains(Refused("STFT", {{1, 100, 2}, List({1}), {10}}), "because onesided is 1"));
  CHECK(Contains(Refused("STFT", {{1, 100}, List({1}), {10}}), "[batch, steps, 1]"));
  CHECK(Contains(Refused("STFT", {x, List({1}), kLeftOut, List({0})}), "the transform is 0"));
}

TEST_CASE("STFT keeps the promises of its schema, its gradient too") {
  const Tensor x = Random({2, 11, 1}, 1, DType::kFloat64);
  const Tensor window = Random({4}, 2, DType::kFloat64);
  CheckNode(OperatorDef("STFT", {"x", "step", "window"}, {"y"}), {x, List({3}), window});
  CheckNode(OperatorDef("STFT", {"x", "step", "", "n"}, {"y"}), {x, List({2}), kNone, List({5})});
  CheckNode(OperatorDef("STFT", {"x", "step", "window", "n"}, {"y"}, {{"onesided", 0}}),
            {Random({1, 7, 2}, 3, DType::kFloat64), List({2}), window, List({4})});
}

}  // namespace
}  // namespace stft_test
