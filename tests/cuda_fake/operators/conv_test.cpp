
#include "on_cuda.hpp"

namespace cuda_conv_test {
using namespace opkit;

namespace {

struct Case {
  Shape x, w;
  Arguments args;
};
Arguments Windows(const std::vector<int64_t>& strides, const std::vector<int64_t>& pads,
                  const std::vector<int64_t>& dilations = {}, int64_t group = 1) {
  Arguments args{{"strides", strides}, {"pads", pads}, {"group", group}};
  if (!dilations.empty()) args.Set("dilations", dilations);
  return args;
}
const Case kConvolutions[] = {
    {{2, 3, 9}, {4, 3, 3}, Windows({2}, {1, 1})},
    {{2, 3, 7, 6}, {4, 3, 3, 2}, {}},
    {{2, 4, 7, 6}, {6, 2, 3, 3}, Windows({2, 1}, {1, 2, 1, 2}, {1, 2}, 2)},
    {{1, 4, 5, 5}, {4, 1, 3, 3}, Windows({1, 1}, {1, 1, 1, 1}, {}, 4)},
    {{1, 2, 4, 4}, {2, 2, 3, 3}, Windows({2, 2}, {1, 1, 0, 0})},  // the end pads reach no window
    {{1, 2, 4, 4}, {2, 2, 3, 3}, Windows({2, 1}, {0, 1, 1, 0})},
    {{2, 2, 6}, {2, 1, 2}, Windows({1}, {0, 3}, {}, 2)},
    {{1, 2, 5, 4, 6}, {3, 2, 2, 3, 3}, Windows({2, 1, 2}, {1, 1, 0, 1, 1, 0})}};
const Case kTransposed[] = {
    {{2, 4, 5}, {4, 3, 3}, Windows({2}, {1, 1})},
    {{2, 4, 4, 3}, {4, 3, 3, 2}, {}},
    {{2, 4, 4, 3}, {4, 3, 3, 3}, Windows({2, 1}, {1, 2, 1, 2}, {1, 2}, 2)},
    {{1, 2, 3, 3}, {2, 2, 3, 3}, Windows({2, 1}, {0, 1, 1, 0})},
    {{1, 2, 3, 2, 4}, {2, 3, 2, 3, 3}, Windows({2, 1, 2}, {1, 1, 0, 1, 1, 0})}};
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

void CheckGradients(const std::string& op, const Case& node) {
  const Tensor x = SmallIntegers(node.x, DType::kFloat32);
  const Tensor w = SmallIntegers(node.w, DType::kFloat32, 1);
  const Tensor y = Invoke(op, {x, w}, node.args)[0];
  const Tensor slopes = SmallIntegers(y.shape(), DType::kFloat32, 3);
  for (const std::string& backend : CudaBackendsOf(op + "Gradient"))
    for (const char* of : {"X", "W"}) {
      Arguments args = node.args;
      args.Set("of", of);
      CheckOnCuda(backend, op + "Gradient", {x, w, slopes}, args);
    }
}

}  // namespace

TEST_CASE("Conv on CUDA has the results of the CPU") {
  for (const std::string& backend : CudaBackendsOf("Conv"))
    for (const Case& node : kConvolutions)
      for (const DType dtype : kFloats) {
        const Tensor x = SmallIntegers(node.x, dtype), w = SmallIntegers(node.w, dtype, 1);
        CheckOnCuda(backend, "Conv", {x, w}, node.args);
        CheckOnCuda(backend, "Conv", {x, w, SmallIntegers({node.w[0]}, dtype, 2)}, node.args);
      }
}

TEST_CASE("ConvTranspose on CUDA has the results of the CPU") {
  for (const std::string& backend : CudaBackendsOf("ConvTranspose")) {
    for (const Case& node : kTransposed)
      for (const DType dtype : kFloats) {
        const Tensor x = SmallIntegers(node.x, dtype), w = SmallIntegers(node.w, dtype, 1);
        CheckOnCuda(backend, "ConvTranspose", {x, w}, node.args);
        const int64_t group = node.args.Get<int64_t>("group", 1);
        CheckOnCuda(backend, "ConvTranspose", {x, w, SmallIntegers({node.w[1] * group}, dtype, 2)},
                    node.args);
      }
    Arguments padded = Windows({2, 2}, {1, 1, 1, 1});
    padded.Set("output_padding", std::vector<int64_t>{1, 0});
    CheckOnCuda(backend, "ConvTranspose",
                {SmallIntegers({1, 2, 3, 3}, DType::kFloat32),
                 SmallIntegers({2, 2, 3, 3}, DType::kFloat32)},
                padded);
  }
}

TEST_CASE("the gradients of convolutions on CUDA have the results of the CPU") {
  for (const Case& node : kConvolutions) CheckGradients("Conv", node);
  for (const Case& node : kTransposed) CheckGradients("ConvTranspose", node);
}

TEST_CASE("the loops take convolutions without elements, which cuDNN does not") {
  const auto integers = [](const Shape& shape) { return SmallIntegers(shape, DType::kFloat32); };
  CheckOnCuda("cuda", "Conv", {integers({0, 2, 4, 4}), integers({2, 2, 3, 3})});
  CheckOnCuda("cuda", "Conv", {integers({1, 0, 4, 4}), integers({2, 0, 3, 3}), integers({2})});
}

TEST_CASE("a fourth spatial axis is left to the CPU") {
  const Tensor x = SmallIntegers({1, 1, 2, 2, 2, 2}, DType::kFloat32);
  CHECK_THROWS_WITH_AS(RunOnCuda("cuda", "Conv", {x, x}),
                       doctest::Contains("at most 3 spatial axes, and the input has 4"), Error);
}

}  // namespace cuda_conv_test
