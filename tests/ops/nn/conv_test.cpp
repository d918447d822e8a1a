// Conv: values, shapes, groups, errors, cost.
#include "opkit/ops/nn/conv.hpp"

#include <doctest/doctest.h>

#include <array>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace conv_test {
using namespace opkit_tests;

namespace {

// The inferred output.
TensorInfo Infer(std::vector<TensorInfo> inputs, Arguments args = {}) {
  OperatorDef def("Conv", {"x", "w"}, {"y"}, std::move(args));
  if (inputs.size() == 3) def.Input("b");
  return OpRegistry::Global().GetSchema("Conv").InferOutputs(def, std::move(inputs))[0];
}
std::string Refused(std::vector<TensorInfo> inputs, Arguments args = {}) {
  return ErrorOf([&] { static_cast<void>(Infer(inputs, args)); }).message();
}

TEST_CASE("A kernel of ones sums each window, with and without pads") {
  const Tensor x = Counting({1, 1, 5, 5}), w = Filled({1, 1, 3, 3}, 1);
  CHECK(Invoke("Conv", {x, w})[0].ToVector<float>() ==
        Floats{54, 63, 72, 99, 108, 117, 144, 153, 162});
  const Tensor padded = Invoke("Conv", {x, w}, {{"pads", Ints{1, 1, 1, 1}}})[0];
  CHECK(padded.shape() == Shape{1, 1, 5, 5});
  CHECK(Floats(padded.data<float>(), padded.data<float>() + 10) ==
        Floats{12, 21, 27, 33, 24, 33, 54, 63, 72, 51});
}

TEST_CASE("A kernel is not turned around: it is correlated") {
  const Tensor x = Tensor::From<float>({1, 1, 4}, {1, 2, 3, 4});
  const Tensor w = Tensor::From<float>({1, 1, 2}, {10, 1});
  CHECK(Invoke("Conv", {x, w})[0].ToVector<float>() == Floats{12, 23, 34});
}

TEST_CASE("Each group of outputs sees its own channels, and each output its bias") {
  const Tensor x = Tensor::From<float>({1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  // Outputs 0 and 1 read channels 0 and 1; 2 and 3 read channels 2 and 3.
  const Tensor w = Tensor::From<float>({4, 2, 1}, {1, 0, 0, 1, 1, 1, 0, 2});
  const Tensor b = Tensor::From<float>({4}, {100, 200, 300, 400});
  const Tensor y = Invoke("Conv", {x, w, b}, {{"group", 2}})[0];
  CHECK(y.shape() == Shape{1, 4, 2});
  CHECK(y.ToVector<float>() == Floats{101, 102, 203, 204, 312, 314, 414, 416});
}

TEST_CASE("Dilations spread the kernel and strides skip windows, each axis by its own number") {
  const Tensor x = Counting({1, 1, 4, 6}), w = Filled({1, 1, 2, 2}, 1);
  const Tensor y = Invoke("Conv", {x, w}, {{"dilations", Ints{2, 3}}, {"strides", Ints{1, 2}}})[0];
  CHECK(y.shape() == Shape{1, 1, 2, 2});
  // Rows r and r + 2, columns c and c + 3.
  CHECK(y.ToVector<float>() ==
        Floats{0 + 3 + 12 + 15, 2 + 5 + 14 + 17, 6 + 9 + 18 + 21, 8 + 11 + 20 + 23});
}

TEST_CASE("Images and kernels of one and three spatial axes, and batches") {
  const Tensor line = Counting({2, 1, 3});
  CHECK(Invoke("Conv", {line, Filled({1, 1, 2}, 1)})[0].ToVector<float>() == Floats{1, 3, 7, 9});
  const Tensor cube = Counting({1, 1, 2, 2, 2});
  CHECK(Invoke("Conv", {cube, Filled({1, 1, 2, 2, 2}, 1)})[0].ToVector<float>() == Floats{28});
}

TEST_CASE("Every floating-point type is summed in double") {
  const Tensor x = Tensor::From<double>({1, 1, 3}, {1e15, 1, -1e15});
  const Tensor w = Tensor::From<double>({1, 1, 3}, {1, 1, 1});
  CHECK(Invoke("Conv", {x, w})[0].ToVector<double>() == std::vector<double>{1});
  const auto half = [](float value) { return float16(value); };
  const Tensor hx = Tensor::From<float16>({1, 1, 2}, {half(1.5f), half(2)});
  const Tensor hw = Tensor::From<float16>({1, 1, 1}, {half(2)});
  CHECK(float(Invoke("Conv", {hx, hw})[0].data<float16>()[0]) == 3);
}

TEST_CASE("Without channels the bias is left, without images nothing") {
  const Tensor b = Tensor::From<float>({2}, {7, 8});
  CHECK(Invoke("Conv", {Filled({1, 0, 2}, 0), Filled({2, 0, 1}, 0), b})[0].ToVector<float>() ==
        Floats{7, 7, 8, 8});
  CHECK(Invoke("Conv", {Filled({0, 3, 4}, 0), Filled({2, 3, 3}, 0), b})[0].shape() ==
        Shape{0, 2, 2});
}

TEST_CASE("Inference keeps the batch and symbols, and computes the other extents") {
  const TensorInfo w = F({8, 3, 3, 3});
  CHECK(Infer({F({Sym("N"), 3, Sym("H"), 10}), w}, {{"pads", Ints{1, 1, 1, 1}}}).shape ==
        SymbolicShape{Sym("N"), 8, Sym("H"), 10});
  CHECK(Infer({F({Sym("N"), 3, Sym("H"), 10}), w}, {{"strides", Ints{2, 2}}}).shape ==
        SymbolicShape{Sym("N"), 8, Dim(), 4});
  CHECK(Infer({TensorInfo(), w}).shape == SymbolicShape{Dim(), 8, Dim(), Dim()});
  CHECK(Infer({F({1, 3, 9, 9}), TensorInfo()}).shape == SymbolicShape{1, Dim(), Dim(), Dim()});
  CHECK(Infer({F({1, 3, 9, 9}), TensorInfo()}, {{"kernel_shape", Ints{3, 2}}}).shape ==
        SymbolicShape{1, Dim(), 7, 8});
  CHECK_FALSE(Infer({TensorInfo(), TensorInfo()}).shape.has_rank());
}

TEST_CASE("Operands that do not fit are errors that show both") {
  CHECK(Refused({F({1, 3, 9, 9}), F({8, 3, 3})}) ==
        "Conv: X is [1, 3, 9, 9] and W is [8, 3, 3], expected equal ranks");
  CHECK(Contains(Refused({F({1, 3}), F({8, 3})}), "at least one spatial axis"));
  CHECK(Refused({F({1, 4, 9}), F({8, 3, 3})}) ==
        "Conv: X is [1, 4, 9] and W is [8, 3, 3], expected W's second extent times group (1) to "
        "be X's channels");
  CHECK(Refused({F({1, 6, 9}), F({8, 2, 3})}, {{"group", 3}}) ==
        "Conv: W is [8, 2, 3], whose 8 output channels cannot be divided among 3 groups");
  CHECK(Refused({F({1, 3, 9}), F({8, 3, 3})}, {{"kernel_shape", Ints{2}}}) ==
        "Conv: kernel_shape is [2], but W is [8, 3, 3]");
  CHECK(Refused({F({1, 3, 9}), F({8, 3, 3})}, {{"group", 0}}) ==
        "Conv: group is 0, expected at least 1");
  CHECK(Contains(Refused({F({1, 3, 9}), F({8, 3, 3}), F({7})}), "input 2"));
  CHECK(Contains(Refused({F({1, 3, 9}), {DType::kFloat64, SymbolicShape{8, 3, 3}}}), "float32"));
}

TEST_CASE("A bad node is refused when it is made or run, with the reason") {
  const Tensor x = Counting({1, 1, 3}), w = Filled({1, 1, 2}, 1);
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Conv", {x, w}, {{"auto_pad", "UPPER"}});
                 }).message(),
                 "argument 'auto_pad' of Conv is 'UPPER', which is none of its values"));
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Conv", {x, w}, {{"strides", Ints{1, 1}}});
                 }).message(),
                 "strides is [1, 1], expected 1 numbers"));
  const Tensor ints = Tensor::From<int32_t>({1, 1, 3}, {1, 2, 3});
  CHECK(Contains(ErrorOf([&] { Invoke("Conv", {ints, ints}); }).message(), "int32"));
}

TEST_CASE("The cost is two operations for every product") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("Conv");
  const OperatorDef def("Conv", {"x", "w", "b"}, {"y"}, {{"group", 2}});
  const OpCost cost =
      schema.Cost(def, {F({2, 4, 5, 6}), F({8, 2, 3, 1}), F({8})}, {F({2, 8, 3, 6})});
  CHECK(cost.flops == 2 * 2 * 8 * 3 * 6 * 2 * 3);
  CHECK(cost.params_bytes == 4 * (8 * 2 * 3 + 8));
  CHECK(cost.bytes_read == 4 * (2 * 4 * 5 * 6 + 8 * 2 * 3 + 8));
  CHECK(cost.bytes_written == 4 * 2 * 8 * 3 * 6);
}

TEST_CASE("Conv keeps the promises of its schema") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const OperatorDef def("Conv", {"x", "w", "b"}, {"y"},
                          {{"group", 2}, {"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 1}}});
    CheckNode(def, {Random({2, 4, 5, 6}, 1, dtype), Random({6, 2, 3, 2}, 2, dtype),
                    Random({6}, 3, dtype)});
  }
}

TEST_CASE("Gradients of Conv with groups, pads, gaps and pixels that no window covers") {
  const std::pair<Arguments, std::array<Shape, 2>> nodes[] = {
      {{{"group", 2}, {"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 1}}},
       {Shape{2, 4, 5, 4}, Shape{4, 2, 3, 2}}},
      {{{"strides", Ints{3}}, {"dilations", Ints{2}}}, {Shape{2, 1, 9}, Shape{3, 1, 2}}},
      {{{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2, 2}}},
       {Shape{1, 2, 3, 4}, Shape{2, 2, 2, 3}}}};
  for (const auto& [args, shapes] : nodes) {
    const OperatorDef def("Conv", {"x", "w", "b"}, {"y"}, args);
    const auto result =
        CheckGradient(def,
                      {Random(shapes[0], 1, DType::kFloat64), Random(shapes[1], 2, DType::kFloat64),
                       Random({shapes[1][0]}, 3, DType::kFloat64)},
                      {.inputs = {0, 1, 2}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
  CHECK(!ErrorOf([] {
           Invoke("ConvGradient", {Counting({1, 1, 4}), Counting({1, 1, 2}), Counting({1, 1, 4})},
                  {{"of", "X"}});
         })
             .message()
             .empty());
}

}  // namespace
}  // namespace conv_test
