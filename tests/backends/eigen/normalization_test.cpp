// The normalizations of the "eigen" backend: the same as the plain operators.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace normalization_test {
using namespace opkit;

namespace {

const Shape kShapes[] = {{1, 16, 24, 160}, {2, 3, 5}, {1, 480, 1, 40}, {0, 4, 3}, {2, 3, 2, 3, 70}};

// In [1, 3).
Tensor Positive(Shape shape, uint64_t seed) {
  Tensor out = Random(std::move(shape), seed);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] += 2;
  return out;
}
std::vector<Tensor> BatchInputs(const Shape& x) {
  const Shape channels = {x.rank() == 1 ? 1 : x[1]};
  return {Random(x, 1), Random(channels, 2), Random(channels, 3), Random(channels, 4),
          Positive(channels, 5)};
}

TEST_CASE("BatchNormalization, of images, of vectors, and of one channel") {
  for (const Shape& shape : kShapes) CheckSameOn("eigen", "BatchNormalization", BatchInputs(shape));
  CheckSameOn("eigen", "BatchNormalization", BatchInputs({30, 2000}), {{"epsilon", 0.5f}});
  CheckSameOn("eigen", "BatchNormalization", BatchInputs({300}));
}

TEST_CASE("BatchNormalization takes statistics for every activation") {
  const Arguments args = {{"spatial", 0}};
  for (const Shape& shape : {Shape{3, 5, 7, 2}, Shape{300, 500}, Shape{2, 3, 1}, Shape{0, 4, 3}}) {
    std::vector<int64_t> extents(shape.begin() + 1, shape.end());
    const Shape sample(extents);
    const std::vector<Tensor> inputs = {Random(shape, 1), Random(sample, 2), Random(sample, 3),
                                        Random(sample, 4), Positive(sample, 5)};
    CHECK(IsTakenBy("eigen", "BatchNormalization", inputs, args, 1));
    CheckSameOn("eigen", "BatchNormalization", inputs, args);
  }
  const auto of_sample = [](std::initializer_list<float> values) {
    return Tensor::From<float>({1, 2}, values);
  };
  const Tensor y =
      Invoke("BatchNormalization",
             {Tensor::From<float>({2, 1, 2}, {3, 5, 10, 20}), of_sample({2, 1}), of_sample({1, 0}),
              of_sample({1, 10}), of_sample({3, 24})},
             {{"epsilon", 1.f}, {"spatial", 0}}, {.backends = "eigen", .num_outputs = 1})[0];
  CHECK(y.ToVector<float>() == std::vector<float>{3, -1, 10, 2});
}

TEST_CASE("A mean far from zero costs no accuracy") {
  std::vector<Tensor> inputs = BatchInputs({1, 3, 50});
  for (int64_t i = 0; i < inputs[0].numel(); ++i) inputs[0].mutable_data<float>()[i] += 1000;
  for (int64_t i = 0; i < 3; ++i) inputs[3].mutable_data<float>()[i] += 1000;
  CheckSameOn("eigen", "BatchNormalization", inputs);
}

TEST_CASE("Training is left to the plain operator") {
  Workspace ws;
  const std::vector<Tensor> inputs = BatchInputs({2, 3, 4});
  OperatorDef def("BatchNormalization", {"0", "1", "2", "3", "4"}, {"y"}, {{"training_mode", 1}});
  for (size_t i = 0; i < 5; ++i) *ws.CreateTensor(def.inputs()[i]) = inputs[i];
  CHECK(Contains(ErrorOf([&] { CreateOperator(def.Backends("eigen"), &ws)->Run(); }).message(),
                 "does not train"));
}

TEST_CASE("InstanceNormalization agrees with the plain operator in every shape") {
  for (const Shape& shape : kShapes)
    CheckSameOn("eigen", "InstanceNormalization",
                {Random(shape, 1), Random({shape[1]}, 2), Random({shape[1]}, 3)});
}

TEST_CASE("LRN, with the usual exponent and with others") {
  for (const Shape& shape : kShapes)
    for (const float beta : {0.75f, 0.5f, 1.3f})
      for (const int64_t size : {1, 4, 5, 1000})
        CheckSameOn("eigen", "LRN", {Random(shape, 1)},
                    {{"size", size}, {"beta", beta}, {"alpha", 0.3f}, {"bias", 1.5f}});
}

TEST_CASE("A large plane is normalized as accurately as a small one") {
  Tensor x = Random({1, 1, 1500, 1501}, 1);
  for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] += 100;
  CheckSameOn("eigen", "InstanceNormalization", {x, Filled({1}, 1.f), Filled({1}, 0.f)});
}

TEST_CASE("Squares that overflow, and an infinite variance") {
  for (const float beta : {0.75f, 0.5f, 1.3f})
    for (const int64_t size : {1, 3})
      for (const float value : {1e20f, -3e38f, INFINITY, NAN})
        for (const float alpha : {1e-4f, 1e-20f}) {
          Tensor x = Random({1, 4, 19}, 1);
          x.mutable_data<float>()[23] = value;
          CheckSameOn("eigen", "LRN", {x}, {{"size", size}, {"beta", beta}, {"alpha", alpha}});
        }
  CheckSameOn(
      "eigen", "InstanceNormalization",
      {Tensor::From<float>({1, 1, 3}, {1e20f, 2e20f, -1e20f}), Filled({1}, 1.f), Filled({1}, 0.f)});
  for (const Shape& shape : {Shape{1, 40, 3}, Shape{2, 40}}) {
    std::vector<Tensor> inputs = BatchInputs(shape);
    for (int64_t c = 0; c < 20; ++c) inputs[4].mutable_data<float>()[c] = INFINITY;
    CheckSameOn("eigen", "BatchNormalization", inputs);
  }
}

TEST_CASE("The normalizations keep the promises of their schemas on every kernel") {
  CheckOptions options;
  options.compare.bitwise_threads = true;
  options.compare.gradient = false;  // ops_test checks it, on smaller images
  const Shape shape = {2, 30, 41, 43};
  const Tensor channels = Random({30}, 2);
  for (const auto& [def, inputs] : std::vector<std::pair<OperatorDef, std::vector<Tensor>>>{
           {{"BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}}, BatchInputs(shape)},
           {{"InstanceNormalization", {"x", "s", "b"}, {"y"}},
            {Random(shape, 1), channels, channels}},
           {{"LRN", {"x"}, {"y"}, {{"size", 5}}}, {Random(shape, 1)}}}) {
    CheckNode(def, inputs, options);
  }
}

}  // namespace
}  // namespace normalization_test
