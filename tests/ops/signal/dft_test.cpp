// DFT.
#include "opkit/ops/signal/dft.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/all.hpp"

namespace dft_test {
using namespace opkit_tests;

namespace {

Tensor Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke("DFT", inputs, std::move(args))[0];
}
void CheckClose(const Tensor& found, const Floats& expected) {
  const Floats values = FloatsOf(found);
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(values[i] == doctest::Approx(expected[i]).epsilon(1e-5));
}
const Tensor kNone;

// A real signal, and its spectrum by hand: 1 + 2 w + 3 w^2 + 4 w^3 for the powers w of -i.
const Tensor kSignal = Tensor::From<float>({1, 4, 1}, {1, 2, 3, 4});
const Floats kSpectrum{10, 0, -2, 2, -2, 0, -2, -2};

TEST_CASE("DFT transforms real and complex lines") {
  CheckClose(Run({kSignal}), kSpectrum);
  // i times the signal: the spectrum times i.
  CheckClose(Run({Tensor::From<float>({1, 4, 2}, {0, 1, 0, 2, 0, 3, 0, 4})}),
             {0, 10, -2, -2, 0, -2, 2, -2});
  CheckClose(Run({kSignal}, {{"onesided", 1}}), {10, 0, -2, 2, -2, 0});
  CheckClose(Run({Tensor::From<float>({1, 1}, {3})}), {3, 0});
}

TEST_CASE("the inverse of DFT gives the signal back") {
  const Tensor spectrum = Run({kSignal});
  CheckClose(Run({spectrum}, {{"inverse", 1}}), {1, 0, 2, 0, 3, 0, 4, 0});
  const Tensor half = Run({kSignal}, {{"onesided", 1}});
  const Arguments back{{"onesided", 1}, {"inverse", 1}};
  CHECK(Run({half}, back).shape() == Shape{1, 4, 1});
  CheckClose(Run({half}, back), {1, 2, 3, 4});
  const Tensor odd = Tensor::From<float>({3, 1}, {1, 2, 6});
  CheckClose(Run({Run({odd}, {{"onesided", 1}}), List({3})}, back), {1, 2, 6});
}

TEST_CASE("dft_length cuts lines or appends zeros") {
  CheckClose(Run({kSignal, List({2})}), {3, 0, -1, 0});
  CheckClose(Run({Tensor::From<float>({2, 1}, {1, 2}), List({4})}), {3, 0, 1, -2, -1, 0, 1, 2});
  // One frequency of a one-sided spectrum, of a signal of two steps.
  CheckClose(
      Run({Tensor::From<float>({1, 2}, {4, 0}), List({2})}, {{"onesided", 1}, {"inverse", 1}}),
      {2, 2});
}

TEST_CASE("the axis is an input") {
  const Tensor x = Tensor::From<float>({2, 2, 1}, {1, 2, 3, 5});
  CheckClose(Run({x}), {3, 0, -1, 0, 8, 0, -2, 0});
  for (const int64_t axis : {0, -3})
    CheckClose(Run({x, kNone, Tensor::Scalar(axis)}), {4, 0, 7, 0, -2, 0, -3, 0});
}

TEST_CASE("all floating-point types are computed in double") {
  const Tensor x = Random({3, 30, 2}, 5, DType::kFloat64);
  const Tensor back = Run({Run({x})}, {{"inverse", 1}});
  for (int64_t i = 0; i < x.numel(); ++i)
    CHECK(back.data<double>()[i] == doctest::Approx(x.data<double>()[i]).epsilon(1e-12));
  const Tensor half = Tensor::From<float16>({2, 1}, {float16(1.f), float16(2.f)});
  CHECK(static_cast<float>(Run({half}).data<float16>()[2]) == -1);
}

TEST_CASE("shapes of DFT are inferred, and wrong ones refused") {
  const Known x{Sym("N"), 10, 1};
  CHECK(Inferred("DFT", {x}) == "float32[N, 10, 2]");
  CHECK(Inferred("DFT", {x}, {{"onesided", 1}}) == "float32[N, 6, 2]");
  CHECK(Inferred("DFT", {x, List({7})}, {{"onesided", 1}}) == "float32[N, 4, 2]");
  CHECK(Inferred("DFT", {x, Known(DType::kInt64, SymbolicShape(Shape{}))}) == "float32[N, ?, 2]");
  CHECK(Inferred("DFT", {x, kLeftOut, Known(DType::kInt64, SymbolicShape(Shape{}))}) ==
        "float32[?, ?, 2]");
  CHECK(Inferred("DFT", {{3, 6, 2}}, {{"onesided", 1}, {"inverse", 1}}) == "float32[3, 10, 1]");
  CHECK(Contains(Refused("DFT", {{3, 6, 3}}), "expected 1 for real numbers"));
  CHECK(Contains(Refused("DFT", {{3, 6, 2}}, {{"onesided", 1}}), "expected 1: real"));
  CHECK(Contains(Refused("DFT", {x}, {{"onesided", 1}, {"inverse", 1}}), "expected 2: complex"));
  CHECK(Contains(Refused("DFT", {x, kLeftOut, List({2})}), "is the last one"));
  CHECK(Contains(Refused("DFT", {x, List({0})}), "length of the transform is 0"));
  CHECK(Contains(Refused("DFT", {{3, 1, 2}}, {{"onesided", 1}, {"inverse", 1}}),
                 "length of the transform is 0"));
  CHECK(Contains(Refused("DFT", {{1}}), "expected rank 2"));
  CHECK(Contains(Refused("DFT", {x, List({2, 3})}), "expected one integer"));
}

TEST_CASE("DFT keeps the promises of its schema, its gradient too") {
  const Tensor real = Random({2, 5, 1}, 1, DType::kFloat64);
  const Tensor complex = Random({2, 4, 2}, 2, DType::kFloat64);
  for (const int64_t inverse : {0, 1}) {
    CheckNode(OperatorDef("DFT", {"x"}, {"y"}, {{"inverse", inverse}}), {real});
    CheckNode(OperatorDef("DFT", {"x", "n", "axis"}, {"y"}, {{"inverse", inverse}}),
              {complex, List({3}), List({0})});
  }
  CheckNode(OperatorDef("DFT", {"x"}, {"y"}, {{"onesided", 1}}), {real});
  CheckNode(OperatorDef("DFT", {"x", "n"}, {"y"}, {{"onesided", 1}}), {real, List({8})});
  const Arguments back{{"onesided", 1}, {"inverse", 1}};
  CheckNode(OperatorDef("DFT", {"x"}, {"y"}, back), {complex});
  for (const int64_t n : {3, 7, 8})
    CheckNode(OperatorDef("DFT", {"x", "n"}, {"y"}, back), {complex, List({n})});
}

}  // namespace
}  // namespace dft_test
