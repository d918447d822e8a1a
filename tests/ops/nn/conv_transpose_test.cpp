// ConvTranspose: values, shapes, how pads follow from an output's shape.
#include "opkit/ops/nn/conv_transpose.hpp"

#include <doctest/doctest.h>

#include <array>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace conv_transpose_test {
using namespace opkit_tests;

namespace {

SymbolicShape Infer(SymbolicShape x, SymbolicShape w, Arguments args = {}) {
  const OperatorDef def("ConvTranspose", {"x", "w"}, {"y"}, std::move(args));
  return OpRegistry::Global()
      .GetSchema("ConvTranspose")
      .InferOutputs(def, {F(std::move(x)), F(std::move(w))})[0]
      .shape;
}
std::string Refused(SymbolicShape x, SymbolicShape w, Arguments args = {}) {
  return ErrorOf([&] { static_cast<void>(Infer(x, w, args)); }).message();
}
Floats Line(Floats x, Floats w, Arguments args) {
  return Invoke("ConvTranspose",
                {Tensor::From<float>({1, 1, static_cast<int64_t>(x.size())}, x),
                 Tensor::From<float>({1, 1, static_cast<int64_t>(w.size())}, w)},
                std::move(args))[0]
      .ToVector<float>();
}

TEST_CASE("Each element adds its multiple of the kernel") {
  CHECK(Line({1, 2}, {1, 10, 100}, {}) == Floats{1, 12, 120, 200});
  CHECK(Line({1, 2}, {1, 10}, {{"strides", Ints{3}}}) == Floats{1, 10, 0, 2, 20});
  CHECK(Line({1, 2}, {1, 10}, {{"dilations", Ints{2}}}) == Floats{1, 2, 10, 20});
}

TEST_CASE("Pads cut off, output_padding adds at the end") {
  CHECK(Line({1, 2}, {1, 10, 100}, {{"pads", Ints{1, 0}}}) == Floats{12, 120, 200});
  CHECK(Line({1, 2}, {1, 10, 100}, {{"pads", Ints{0, 2}}}) == Floats{1, 12});
  CHECK(Line({1, 2}, {1}, {{"strides", Ints{3}}, {"output_padding", Ints{2}}}) ==
        Floats{1, 0, 0, 2, 0, 0});
}

TEST_CASE("output_shape decides the pads, the odd one at the beginning but for SAME_UPPER") {
  const Floats x = {1, 2}, w = {1, 10, 100};  // 1 12 120 200 before anything is cut off
  CHECK(Line(x, w, {{"output_shape", Ints{3}}}) == Floats{12, 120, 200});
  CHECK(Line(x, w, {{"output_shape", Ints{3}}, {"auto_pad", "SAME_UPPER"}}) == Floats{1, 12, 120});
  CHECK(Line(x, w, {{"output_shape", Ints{2}}, {"pads", Ints{2, 0}}}) == Floats{12, 120});
  CHECK(Line(x, w, {{"output_shape", Ints{6}}}) == Floats{1, 12, 120, 200, 0, 0});
}

TEST_CASE("SAME makes the output the input times the stride") {
  CHECK(Line({1, 2}, {1, 10, 100}, {{"strides", Ints{2}}, {"auto_pad", "SAME_UPPER"}}) ==
        Floats{1, 10, 102, 20});
  CHECK(Line({1, 2}, {1, 10, 100}, {{"strides", Ints{2}}, {"auto_pad", "SAME_LOWER"}}) ==
        Floats{10, 102, 20, 200});
}

TEST_CASE("Each group makes its own outputs from its own channels, and adds its bias") {
  // Two groups of one channel and two outputs each.
  const Tensor x = Tensor::From<float>({2, 2, 1, 1}, {1, 2, 3, 4});
  const Tensor w = Tensor::From<float>({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor b = Tensor::From<float>({4}, {0, 0, 0, 100});
  const Tensor y = Invoke("ConvTranspose", {x, w, b}, {{"group", 2}})[0];
  CHECK(y.shape() == Shape{2, 4, 1, 2});
  CHECK(y.ToVector<float>() == Floats{1, 2, 3, 4, 10, 12, 114, 116,  //
                                      3, 6, 9, 12, 20, 24, 128, 132});
}

TEST_CASE("Inference keeps the batch, and refuses shapes that do not fit") {
  CHECK(Infer({Sym("N"), 4, Sym("L")}, {4, 2, 3}, {{"pads", Ints{1, 1}}, {"group", 2}}) ==
        SymbolicShape{Sym("N"), 4, Sym("L")});
  CHECK(Infer({Sym("N"), 4, Sym("L")}, {4, 2, 3}) == SymbolicShape{Sym("N"), 2, Dim()});
  CHECK(Infer({1, 4, Sym("L")}, {4, 2, Dim()}, {{"auto_pad", "SAME_LOWER"}}) ==
        SymbolicShape{1, 2, Sym("L")});
  CHECK(Infer({1, 4, Sym("L")}, {4, 2, Dim()}, {{"output_shape", Ints{9}}}) ==
        SymbolicShape{1, 2, 9});
  CHECK(Infer({1, 4, 3, 5}, {4, 2, 2, 3}, {{"strides", Ints{2, 3}}}) == SymbolicShape{1, 2, 6, 15});
  CHECK(Refused({1, 4, 3}, {5, 2, 3}) ==
        "ConvTranspose: X is [1, 4, 3] and W is [5, 2, 3], expected W's first extent to be X's "
        "channels");
  CHECK(Contains(Refused({1, 3, 3}, {3, 2, 3}, {{"group", 2}}),
                 "whose 3 input channels cannot be divided among 2 groups"));
  CHECK(Contains(Refused({1, 4, 2}, {4, 2, 1}, {{"pads", Ints{1, 1}}}),
                 "pads 1 and 1 leave nothing of the output's extent 2 along spatial axis 0"));
  CHECK(Contains(Refused({1, 4, 2}, {4, 2, 1}, {{"output_padding", Ints{1}}}),
                 "output_padding is [1], expected less than the stride or the dilation"));
  CHECK(Contains(Refused({1, 4, 2}, {4, 2, 1}, {{"output_shape", Ints{1, 2, 3}}}),
                 "output_shape is [1, 2, 3], expected 1 numbers"));
  CHECK(Contains(Refused({1, 1, INT64_MAX}, {1, 1, 1}, {{"strides", Ints{2}}}), "has no output"));
  CHECK(Contains(Refused({1, 2, 3}, {2, INT64_MAX, 1}, {{"group", 2}}), "too many output"));
}

TEST_CASE("The cost is two operations for every product") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("ConvTranspose");
  const OperatorDef def("ConvTranspose", {"x", "w"}, {"y"}, {{"group", 2}});
  CHECK(schema.Cost(def, {F({2, 4, 5}), F({4, 3, 2})}, {F({2, 6, 6})}).flops ==
        2 * 2 * 4 * 5 * 3 * 2);
}

TEST_CASE("ConvTranspose keeps the promises of its schema") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const OperatorDef def("ConvTranspose", {"x", "w", "b"}, {"y"},
                          {{"group", 2}, {"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 3}}});
    CheckNode(def, {Random({2, 4, 3, 4}, 1, dtype), Random({4, 3, 3, 2}, 2, dtype),
                    Random({6}, 3, dtype)});
  }
}

TEST_CASE("Gradients of ConvTranspose with groups, pads and given outputs") {
  const std::pair<Arguments, std::array<Shape, 2>> nodes[] = {
      {{{"group", 2}, {"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 3}}},
       {Shape{2, 4, 3, 3}, Shape{4, 3, 3, 2}}},
      {{{"output_padding", Ints{2}}, {"dilations", Ints{3}}}, {Shape{1, 2, 4}, Shape{2, 1, 2}}},
      {{{"output_shape", Ints{7}}, {"strides", Ints{2}}}, {Shape{1, 1, 4}, Shape{1, 2, 3}}}};
  for (const auto& [args, shapes] : nodes) {
    const OperatorDef def("ConvTranspose", {"x", "w", "b"}, {"y"}, args);
    const int64_t groups = args.Get<int64_t>("group", 1);
    const auto result =
        CheckGradient(def,
                      {Random(shapes[0], 1, DType::kFloat64), Random(shapes[1], 2, DType::kFloat64),
                       Random({shapes[1][1] * groups}, 3, DType::kFloat64)},
                      {.inputs = {0, 1, 2}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
}

}  // namespace
}  // namespace conv_transpose_test
