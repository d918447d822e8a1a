// BatchNormalization, InstanceNormalization and LRN: values, statistics, shapes.
#include "opkit/ops/nn/normalization.hpp"

#include <doctest/doctest.h>

#include "opkit/op/check.hpp"
#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace normalization_test {
using namespace opkit_tests;

namespace {

Tensor F(Shape shape, std::initializer_list<float> values) {
  return Tensor::From<float>(std::move(shape), values);
}
void CheckNear(const Tensor& found, const Floats& expected) {
  REQUIRE(found.numel() == static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(found.data<float>()[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

Tensor BatchNormalization(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke("BatchNormalization", inputs, std::move(args), InvokeOptions{.num_outputs = 1})[0];
}

TEST_CASE("A batch is scaled by the statistics that are given, channel by channel") {
  const Tensor x = F({1, 2, 2}, {3, 5, 10, 20});
  const Tensor y = BatchNormalization(
      {x, F({2}, {2, 1}), F({2}, {1, 0}), F({2}, {1, 10}), F({2}, {3, 24})}, {{"epsilon", 1.f}});
  CHECK(y.ToVector<float>() == Floats{3, 5, 0, 2});
}

TEST_CASE("Training scales by the batch's own statistics and moves the running ones") {
  const Tensor x = F({2, 1, 2}, {1, 3, 5, 7});  // mean 4, variance 5
  const std::vector<Tensor> y =
      Invoke("BatchNormalization", {x, F({1}, {1}), F({1}, {0}), F({1}, {10}), F({1}, {20})},
             {{"epsilon", 4.f}, {"momentum", 0.75f}, {"training_mode", 1}},
             InvokeOptions{.num_outputs = 3});
  CheckNear(y[0], {-1, -1.f / 3, 1.f / 3, 1});
  CheckNear(y[1], {10 * 0.75f + 4 * 0.25f});
  CheckNear(y[2], {20 * 0.75f + 5 * 0.25f});
}

TEST_CASE("A tensor of one axis is a batch of one channel") {
  const Tensor y = BatchNormalization(
      {F({3}, {1, 2, 3}), F({1}, {2}), F({1}, {0}), F({1}, {1}), F({1}, {1})}, {{"epsilon", 0.f}});
  CHECK(y.ToVector<float>() == Floats{0, 2, 4});
}

TEST_CASE("Without spatial every activation has statistics of its own") {
  const Shape sample = {2, 2};
  const Tensor x = F({2, 2, 2}, {3, 5, 10, 20, 1, 2, 4, 8});
  const Tensor y = BatchNormalization({x, F(sample, {2, 1, 4, 3}), F(sample, {1, 0, 10, -1}),
                                       F(sample, {1, 2, 0, 8}), F(sample, {3, 0, 15, 8})},
                                      {{"epsilon", 1.f}, {"spatial", 0}});
  CHECK(y.shape() == x.shape());
  CHECK(y.ToVector<float>() == Floats{3, 3, 20, 11, 1, 0, 14, -1});
}

TEST_CASE("Without spatial training takes the statistics over the batch alone") {
  const Tensor one = F({1, 2}, {1, 1}), none = F({1, 2}, {0, 0});
  const std::vector<Tensor> y =
      Invoke("BatchNormalization",
             {F({2, 1, 2}, {1, 10, 5, 40}), one, none, F({1, 2}, {7, 9}), F({1, 2}, {8, 25})},
             {{"epsilon", 0.f}, {"momentum", 0.75f}, {"training_mode", 1}, {"spatial", 0}},
             InvokeOptions{.num_outputs = 3});
  CheckNear(y[0], {-1, -1, 1, 1});
  CHECK(y[1].shape() == Shape{1, 2});
  CheckNear(y[1], {7 * 0.75f + 3 * 0.25f, 9 * 0.75f + 25 * 0.25f});
  CheckNear(y[2], {8 * 0.75f + 4 * 0.25f, 25 * 0.75f + 225 * 0.25f});
}

TEST_CASE("Statistics may have a wider type than the images") {
  const auto half = [](float value) { return float16(value); };
  const Tensor x = Tensor::From<float16>({1, 1, 1}, {half(3)});
  const std::vector<Tensor> y = Invoke(
      "BatchNormalization", {x, F({1}, {1}), F({1}, {0}), F({1}, {1}), F({1}, {4})},
      {{"epsilon", 0.f}, {"training_mode", 1}, {"momentum", 1.f}}, InvokeOptions{.num_outputs = 3});
  CHECK(y[0].dtype() == DType::kFloat16);
  CHECK(y[1].dtype() == DType::kFloat32);
  CHECK(y[2].ToVector<float>() == Floats{4});
}

TEST_CASE("Each image's channel is normalized by itself, and large means lose no accuracy") {
  const Tensor x = F({1, 2, 2}, {1e6f, 1e6f + 2, -3, -1});
  const Tensor y =
      Invoke("InstanceNormalization", {x, F({2}, {1, 2}), F({2}, {0, 10})}, {{"epsilon", 0.f}})[0];
  CHECK(y.ToVector<float>() == Floats{-1, 1, 8, 12});
}

TEST_CASE("LRN sums squares over neighbouring channels, more of them after than before") {
  const Tensor x = F({1, 3, 1}, {1, 2, 3});
  auto lrn = [&](int64_t size) {
    return Invoke(
        "LRN", {x},
        {{"size", size}, {"alpha", static_cast<float>(size)}, {"beta", 1.f}, {"bias", 0.f}})[0];
  };
  CheckNear(lrn(1), {1, 0.5f, 1.f / 3});
  CheckNear(lrn(2), {1.f / 5, 2.f / 13, 3.f / 9});
  CheckNear(lrn(3), {1.f / 5, 2.f / 14, 3.f / 13});
  CheckNear(lrn(100), {1.f / 14, 2.f / 14, 3.f / 14});
  CHECK(Contains(ErrorOf([&] { lrn(0); }).message(), "LRN: size is 0, expected at least 1"));
}

TEST_CASE("Inference keeps the images' shape and checks the channels") {
  auto infer = [](SymbolicShape x, Shape channels, Arguments args = {}, int outputs = 1) {
    OperatorDef def("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, std::move(args));
    for (int o = 1; o < outputs; ++o) def.Output("o" + std::to_string(o));
    const TensorInfo c(DType::kFloat32, channels);
    return OpRegistry::Global()
        .GetSchema("BatchNormalization")
        .InferOutputs(def, {TensorInfo(DType::kFloat16, std::move(x)), c, c, c, c});
  };
  const auto y = infer({Sym("N"), 3, Sym("L")}, {3}, {{"training_mode", 1}}, 3);
  CHECK(y[0].shape == SymbolicShape{Sym("N"), 3, Sym("L")});
  CHECK(y[0].dtype == DType::kFloat16);
  CHECK(y[1].shape == SymbolicShape{3});
  CHECK(y[1].dtype == DType::kFloat32);
  CHECK(Contains(ErrorOf([&] { infer({1, 4, 5}, {3}); }).message(), "input 1"));
  CHECK(Contains(ErrorOf([&] { infer(Shape{}, {3}); }).message(), "a rank of at least 1"));
  CHECK(Contains(ErrorOf([&] {
                   infer({1, 3}, {3}, {}, 2);
                 }).message(),
                 "output 1 exists with training_mode 1 only"));
}

TEST_CASE("Without spatial inference wants statistics of the shape of one sample") {
  const Known x = {Sym("N"), 3, Sym("L")}, unknown = kNoRank;
  const auto all = [](const Known& images, const Known& statistics) {
    return std::vector<Known>{images, statistics, statistics, statistics, statistics};
  };
  const Arguments args = {{"spatial", 0}};
  CHECK(Inferred("BatchNormalization", all(x, {3, 5}), args) == "float32[N, 3, L]");
  CHECK(Inferred("BatchNormalization", all(unknown, {3, 5}), args) == "float32[rank unknown]");
  CHECK(Contains(Refused("BatchNormalization", all({2, 3, 4}, {3}), args),
                 "is float32[3], but inference finds ?[3, 4]"));
  CHECK(Contains(Refused("BatchNormalization", all({2, 3, 4}, {3, 5}), args),
                 "is float32[3, 5], but inference finds ?[3, 4]"));
  CHECK(Contains(Refused("BatchNormalization", all({2}, {1}), args),
                 "X is [2], expected a rank of at least 2"));
  CHECK(Contains(
      ErrorOf([&] {
        const Tensor channels = Filled({2}, 1);
        BatchNormalization({Filled({1, 2, 3}, 1), channels, channels, channels, channels}, args);
      }).message(),
      "input 1"));
}

TEST_CASE("Empty batches are fine") {
  const Tensor none = Filled({0, 2, 3}, 0), two = Filled({2}, 1);
  CHECK(BatchNormalization({none, two, two, two, two}).shape() == Shape{0, 2, 3});
  const Tensor sample = Filled({2, 3}, 1);
  CHECK(BatchNormalization({none, sample, sample, sample, sample}, {{"spatial", 0}}).shape() ==
        Shape{0, 2, 3});
  CHECK(Invoke("InstanceNormalization", {none, two, two})[0].shape() == Shape{0, 2, 3});
  CHECK(Invoke("LRN", {none}, {{"size", 3}})[0].shape() == Shape{0, 2, 3});
}

TEST_CASE("The normalizations keep the promises of their schemas") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor x = Random({2, 3, 4, 5}, 1, dtype), c = Random({3}, 2, dtype);
    Tensor variance = Random({3}, 3, dtype);
    DispatchDType<float, double>(dtype, [&]<class T>() {
      for (int i = 0; i < 3; ++i) variance.mutable_data<T>()[i] += T(2);
    });
    OperatorDef batch("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"});
    CHECK_MESSAGE(CheckOperator(batch, {x, c, c, c, variance}).ok(),
                  ToString(CheckOperator(batch, {x, c, c, c, variance})));
    batch.Output("mean").Output("variance").Arg("training_mode", 1);
    CHECK_MESSAGE(CheckOperator(batch, {x, c, c, c, variance}).ok(),
                  ToString(CheckOperator(batch, {x, c, c, c, variance})));
    const Tensor s = Random({3, 4, 5}, 4, dtype);
    Tensor spread(s.shape(), dtype);
    DispatchDType<float, double>(dtype, [&]<class T>() {
      for (int i = 0; i < 60; ++i) spread.mutable_data<T>()[i] = s.data<T>()[i] + T(2);
    });
    const OperatorDef activations("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"},
                                  {{"spatial", 0}});
    CHECK_MESSAGE(CheckOperator(activations, {x, s, s, s, spread}).ok(),
                  ToString(CheckOperator(activations, {x, s, s, s, spread})));
    const OperatorDef instance("InstanceNormalization", {"x", "s", "b"}, {"y"});
    CHECK_MESSAGE(CheckOperator(instance, {x, c, c}).ok(),
                  ToString(CheckOperator(instance, {x, c, c})));
    const OperatorDef lrn("LRN", {"x"}, {"y"}, {{"size", 3}});
    CHECK_MESSAGE(CheckOperator(lrn, {x}).ok(), ToString(CheckOperator(lrn, {x})));
  }
}

TEST_CASE("Gradients of BatchNormalization and InstanceNormalization") {
  const auto random = [](Shape shape, uint64_t seed) {
    return Random(std::move(shape), seed, DType::kFloat64);
  };
  const auto fault = [](const OperatorDef& def, const std::vector<Tensor>& inputs,
                        const std::vector<int>& of) {
    const auto result = CheckGradient(def, inputs, {.inputs = of});
    return result.ok() ? "" : ToString(result);
  };
  const Tensor s = random({3}, 2), b = random({3}, 3), m = random({3}, 4);
  const Tensor v = Tensor::From<double>({3}, {0.5, 1, 2});
  const OperatorDef inference("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"});
  CHECK(fault(inference, {random({2, 3, 4}, 1), s, b, m, v}, {0, 1, 2, 3, 4}) == "");
  CHECK(fault(inference, {random({2, 3}, 1), s, b, m, v}, {0, 1, 2, 3, 4}) == "");
  const auto one = [](double value) { return Tensor::From<double>({1}, {value}); };
  CHECK(fault(inference, {random({4}, 1), one(2), one(3), one(1), one(0.5)}, {0, 1, 2, 3, 4}) ==
        "");
  const OperatorDef training("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y", "rm", "rv"},
                             {{"training_mode", 1}, {"momentum", 0.25f}});
  CHECK(fault(training, {random({2, 3, 4}, 1), s, b, m, v}, {0, 1, 2, 3, 4}) == "");
  const Tensor a = random({2, 2}, 5), positive = Tensor::From<double>({2, 2}, {0.5, 1, 2, 3});
  OperatorDef activations("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, {{"spatial", 0}});
  CHECK(fault(activations, {random({3, 2, 2}, 1), a, a, a, positive}, {0, 1, 2, 3, 4}) == "");
  activations.Arg("training_mode", 1);
  CHECK(fault(activations, {random({3, 2, 2}, 1), a, a, a, positive}, {0, 1, 2}) == "");
  const OperatorDef instance("InstanceNormalization", {"x", "s", "b"}, {"y"}, {{"epsilon", 0.1f}});
  CHECK(fault(instance, {random({2, 3, 2, 2}, 1), s, b}, {0, 1, 2}) == "");
}

}  // namespace
}  // namespace normalization_test
