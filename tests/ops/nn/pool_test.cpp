// The pools: values, pads, indices, shapes.
#include "opkit/ops/nn/pool.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/op/invoke.hpp"
#include "support/check_node.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace pool_test {
using namespace opkit;

namespace {

SymbolicShape Infer(const char* op, SymbolicShape x, Arguments args = {}) {
  const OperatorDef def(op, {"x"}, {"y"}, std::move(args));
  return OpRegistry::Global()
      .GetSchema(op)
      .InferOutputs(def, {TensorInfo(DType::kFloat32, std::move(x))})[0]
      .shape;
}
Tensor One(const char* op, const Tensor& x, Arguments args = {}) {
  return Invoke(op, {x}, std::move(args), InvokeOptions{.num_outputs = 1})[0];
}
Floats Pool(const char* op, const Tensor& x, Arguments args) {
  return One(op, x, std::move(args)).ToVector<float>();
}
// Values and indices.
std::vector<Tensor> MaxPool2(const Tensor& x, Arguments args) {
  return Invoke("MaxPool", {x}, std::move(args), InvokeOptions{.num_outputs = 2});
}

TEST_CASE("The mean and the largest element of each window") {
  const Tensor x = Counting({1, 1, 3, 3});
  const Arguments args = {{"kernel_shape", Ints{2, 2}}};
  CHECK(Pool("AveragePool", x, args) == Floats{2, 3, 5, 6});
  CHECK(Pool("MaxPool", x, args) == Floats{4, 5, 7, 8});
}

TEST_CASE("The norm of each window, of any exponent; pads add nothing") {
  const Tensor x = Tensor::From<float>({1, 2, 2}, {3, -4, 6, 8});
  Arguments args = {{"kernel_shape", Ints{2}}, {"pads", Ints{0, 1}}};
  CHECK(Pool("LpPool", x, args) == Floats{5, 4, 10, 8});
  args.Set("p", 1);
  CHECK(Pool("LpPool", x, args) == Floats{7, 4, 14, 8});
  args.Set("p", 3);
  CHECK(Pool("LpPool", x, args)[0] == doctest::Approx(std::cbrt(27. + 64)));
  args.Set("p", 0);
  CHECK(
      ErrorOf([&] { Pool("LpPool", x, args); }).message().find("p is 0, expected a number from") !=
      std::string::npos);
}

TEST_CASE("Elements in pads count in a mean only on request, and never in a maximum") {
  const Tensor x = Tensor::From<float>({1, 1, 2}, {-4, -8});
  Arguments args = {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}};
  CHECK(Pool("AveragePool", x, args) == Floats{-4, -6, -8});
  CHECK(Pool("MaxPool", x, args) == Floats{-4, -4, -8});
  args.Set("count_include_pad", 1);
  CHECK(Pool("AveragePool", x, args) == Floats{-2, -6, -4});
}

TEST_CASE("A window past the pads, of ceil_mode, divides by the elements inside") {
  const Tensor x = Tensor::From<float>({1, 1, 3}, {6, 12, 18});
  Arguments args = {{"kernel_shape", Ints{3}},
                    {"strides", Ints{2}},
                    {"ceil_mode", 1},
                    {"pads", Ints{1, 0}},
                    {"count_include_pad", 1}};
  CHECK(Pool("AveragePool", x, args) == Floats{6, 15});
  args.Set("pads", Ints{0, 1});
  args.Set("kernel_shape", Ints{2});
  CHECK(Pool("AveragePool", x, args) == Floats{9, 9});
}

TEST_CASE("A window larger than the input is pooled in ceil_mode") {
  const Tensor x = Tensor::From<float>({1, 1, 2}, {6, 12});
  Arguments args = {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}, {"ceil_mode", 1}};
  CHECK(Pool("MaxPool", x, args) == Floats{12});
  CHECK(Pool("AveragePool", x, args) == Floats{9});
  args.Set("count_include_pad", 1);
  CHECK(Pool("AveragePool", x, args) == Floats{9});
}

TEST_CASE("A window in pads alone has no mean and no maximum") {
  const Tensor x = Tensor::From<float>({1, 1, 1}, {5});
  const Arguments args = {{"kernel_shape", Ints{2}}, {"dilations", Ints{2}}, {"pads", Ints{1, 1}}};
  CHECK(Pool("AveragePool", x, args) == Floats{0});
  CHECK(Pool("MaxPool", x, args) == Floats{-INFINITY});
}

TEST_CASE("Indices count all elements, by rows or by columns, and the first of equal ones wins") {
  const Tensor x = Tensor::From<float>({1, 2, 2, 3}, {1, 5, 5, 5, 2, 1,  //
                                                      0, 0, 0, 0, 0, 7});
  Arguments args = {{"kernel_shape", Ints{2, 2}}};
  std::vector<Tensor> y = MaxPool2(x, args);
  CHECK(y[0].ToVector<float>() == Floats{5, 5, 0, 7});
  CHECK(y[1].ToVector<int64_t>() == Ints{1, 1, 6, 11});
  args.Set("storage_order", 1);
  // (row, column) is at column * 2 + row.
  CHECK(MaxPool2(x, args)[1].ToVector<int64_t>() == Ints{2, 2, 6, 11});
  args.Set("storage_order", 2);
  CHECK(Contains(ErrorOf([&] { MaxPool2(x, args); }).message(),
                 "storage_order is 2, expected 0 (row-major) or 1 (column-major)"));
}

TEST_CASE("A NaN in a window is its maximum") {
  const Tensor x = Tensor::From<float>({1, 1, 3}, {NAN, 1, 2});
  const Floats y = Pool("MaxPool", x, {{"kernel_shape", Ints{2}}});
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 2);
  CHECK(std::isnan(Pool("GlobalMaxPool", x, {})[0]));
}

TEST_CASE("Bytes have a maximum, signed and unsigned") {
  const Arguments args = {{"kernel_shape", Ints{2}}};
  const Tensor s = Tensor::From<int8_t>({1, 1, 3}, {-128, -128, 4});
  CHECK(One("MaxPool", s, args).ToVector<int8_t>() == std::vector<int8_t>{-128, 4});
  const Tensor u = Tensor::From<uint8_t>({1, 1, 3}, {0, 200, 100});
  CHECK(One("MaxPool", u, args).ToVector<uint8_t>() == std::vector<uint8_t>{200, 200});
}

TEST_CASE("Global pools leave one element a channel") {
  const Tensor x = Tensor::From<float>({1, 2, 1, 3}, {1, 2, 6, -1, -5, -3});
  const std::vector<Tensor> mean = Invoke("GlobalAveragePool", {x});
  CHECK(mean[0].shape() == Shape{1, 2, 1, 1});
  CHECK(mean[0].ToVector<float>() == Floats{3, -3});
  CHECK(Pool("GlobalMaxPool", x, {}) == Floats{6, -1});
  CHECK(Pool("GlobalLpPool", Filled({1, 2, 4}, -3), {}) == Floats{6, 6});
  CHECK(Pool("GlobalLpPool", Filled({1, 1, 2, 4}, -3), {{"p", 1}}) == Floats{24});
  CHECK(ErrorOf([&] {
          Pool("GlobalLpPool", x, {{"p", 0}});
        }).message() == "GlobalLpPool: p is 0, expected a number from 1 on");
  CHECK(Invoke("GlobalMaxPool", {Filled({0, 2, 3}, 0)})[0].shape() == Shape{0, 2, 1});
  CHECK(Contains(ErrorOf([] {
                   Invoke("GlobalMaxPool", {Filled({1, 2, 0}, 0)});
                 }).message(),
                 "GlobalMaxPool: X is [1, 2, 0], expected at least one element in each channel"));
  CHECK(Contains(ErrorOf([] { Invoke("GlobalAveragePool", {Filled({3}, 0)}); }).message(),
                 "expected a batch and channels"));
}

TEST_CASE("Inference keeps the batch, the channels and symbols") {
  CHECK(
      Infer("MaxPool", {Sym("N"), Sym("C"), Sym("H"), 8},
            {{"kernel_shape", Ints{3, 2}}, {"pads", Ints{1, 0, 1, 0}}, {"strides", Ints{1, 2}}}) ==
      SymbolicShape{Sym("N"), Sym("C"), Sym("H"), 4});
  CHECK_FALSE(Infer("AveragePool", {}, {{"kernel_shape", Ints{3}}}).has_rank());
  CHECK(Infer("GlobalAveragePool", {Sym("N"), 3, Sym("H"), Dim()}) ==
        SymbolicShape{Sym("N"), 3, 1, 1});
  CHECK(Contains(ErrorOf([] {
                   Infer("MaxPool", {1, 2, 3}, {{"kernel_shape", Ints{}}});
                 }).message(),
                 "kernel_shape is empty"));
  CHECK(Contains(ErrorOf([] {
                   Infer("MaxPool", {1, 2}, {{"kernel_shape", Ints{2}}});
                 }).message(),
                 "at least one spatial axis"));
  CHECK(Contains(ErrorOf([] {
                   Infer("AveragePool", {1, 2, 3}, {{"kernel_shape", Ints{2, 2}}});
                 }).message(),
                 "kernel_shape is [2, 2], expected 1 numbers"));
}

TEST_CASE("The pools keep the promises of their schemas") {
  const Arguments args = {
      {"kernel_shape", Ints{3, 2}}, {"pads", Ints{1, 0, 1, 1}}, {"ceil_mode", 1}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const std::vector<Tensor> x = {Random({2, 3, 5, 4}, 1, dtype)};
    for (const char* op : {"AveragePool", "LpPool", "MaxPool", "GlobalAveragePool", "GlobalLpPool",
                           "GlobalMaxPool"}) {
      OperatorDef def(op, {"x"}, {"y"}, op[0] == 'G' ? Arguments() : args);
      if (op == std::string("MaxPool")) def.Output("indices");
      CheckNode(def, x);
    }
  }
}

TEST_CASE("Gradients of the pools, with pads, gaps and windows that overlap") {
  const Tensor x = Random({2, 2, 5, 4}, 3, DType::kFloat64);
  const Arguments forms[] = {
      {{"kernel_shape", Ints{3, 2}}, {"pads", Ints{1, 0, 1, 1}}, {"strides", Ints{2, 1}}},
      {{"kernel_shape", Ints{2, 2}}, {"ceil_mode", 1}, {"strides", Ints{2, 3}}},
      {{"kernel_shape", Ints{2, 2}}, {"auto_pad", "SAME_LOWER"}, {"dilations", Ints{2, 1}}}};
  for (const Arguments& form : forms)
    for (const auto& [op, more] : {std::pair<const char*, Arguments>{"MaxPool", {}},
                                   {"AveragePool", {}},
                                   {"AveragePool", {{"count_include_pad", 1}}},
                                   {"LpPool", {}},
                                   {"LpPool", {{"p", 3}}}}) {
      CAPTURE(op);
      OperatorDef def(op, {"x"}, {"y"}, form);
      for (const auto& arg : more) def.Arg(arg.name, arg.value);
      const auto result = CheckGradient(def, {x}, {.inputs = {0}});
      CHECK_MESSAGE(result.ok(), ToString(result));
    }
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{2, 3}})
    for (const auto& [op, args] : {std::pair<const char*, Arguments>{"GlobalMaxPool", {}},
                                   {"GlobalAveragePool", {}},
                                   {"GlobalLpPool", {}},
                                   {"GlobalLpPool", {{"p", 1}}}}) {
      CAPTURE(op);
      const auto result = CheckGradient(OperatorDef(op, {"x"}, {"y"}, args),
                                        {Random(shape, 4, DType::kFloat64)}, {.inputs = {0}});
      CHECK_MESSAGE(result.ok(), ToString(result));
    }
}

TEST_CASE("The first of equal elements gets the gradient of MaxPool, and a norm of 0 gives none") {
  const Tensor x = Tensor::From<float>({1, 1, 4}, {2, 2, 0, 0}), dy = Filled({1, 1, 2}, 3);
  const auto gradient = [&](const char* function) {
    return Invoke("PoolGradient", {x, dy},
                  {{"function", function}, {"kernel_shape", Ints{2}}, {"strides", Ints{2}}})[0]
        .ToVector<float>();
  };
  CHECK(gradient("MaxPool") == Floats{3, 0, 3, 0});
  CHECK(gradient("AveragePool") == Floats{1.5f, 1.5f, 1.5f, 1.5f});
  CHECK(gradient("LpPool")[3] == 0);
  CHECK(Contains(ErrorOf([&] {
                   Invoke("PoolGradient", {x, Filled({1, 1, 3}, 1)},
                          {{"function", "MaxPool"}, {"kernel_shape", Ints{3}}});
                 }).message(),
                 "input 1"));
}

}  // namespace
}  // namespace pool_test
