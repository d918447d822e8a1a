#include "opkit/backends/cuda/libraries/cudnn_conv.hpp"

#include "fake_libraries.hpp"
#include "on_cuda.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace cudnn_conv_test {
using namespace opkit;
using Calls = std::vector<fake::CudnnCall>;

namespace {

Tensor Integers(const Shape& shape) { return SmallIntegers(shape, DType::kFloat32); }
Calls CallsOf(const std::string& op, const std::vector<Tensor>& inputs,
              const Arguments& args = {}) {
  fake::TakeCudnnCalls();
  RunOnCuda("cudnn", op, inputs, args);
  return fake::TakeCudnnCalls();
}
// Returns the candidate of cuDNN for a convolution on the device.
KernelCandidate CandidateFor(const Tensor& x, const Tensor& w, const Arguments& args = {},
                             const Device& device = kCuda0, const std::string& op = "Conv") {
  const OperatorDef def = OperatorDef(op, {"x", "w"}, {"y"}, args).Device(device);
  const std::vector<TensorInfo> inputs{TensorInfo::Of(x), TensorInfo::Of(w)};
  const auto outputs = OpRegistry::Global().GetSchema(op).InferOutputs(def, inputs);
  for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
    if (candidate.backend == "cudnn") return candidate;
  FAIL("cuDNN has no kernel");
  return {};
}

}  // namespace

TEST_CASE("each convolution and gradient is one call of cuDNN") {
  const Tensor image = Integers({1, 4, 5, 5}), w = Integers({6, 2, 3, 3}),
               pixels = Integers({1, 6, 3, 3});
  const Arguments args{{"group", 2}};
  const auto of = [&](const char* input) { return Arguments{{"group", 2}, {"of", input}}; };
  CHECK(CallsOf("Conv", {image, w}, args) == Calls{{"forward", 2}});
  CHECK(CallsOf("ConvGradient", {image, w, pixels}, of("X")) == Calls{{"backward data", 2}});
  CHECK(CallsOf("ConvGradient", {image, w, pixels}, of("W")) == Calls{{"backward filter", 2}});
  CHECK(CallsOf("ConvTranspose", {pixels, w}, args) == Calls{{"backward data", 2}});
  CHECK(CallsOf("ConvTransposeGradient", {pixels, w, image}, of("X")) == Calls{{"forward", 2}});
  CHECK(CallsOf("ConvTransposeGradient", {pixels, w, image}, of("W")) ==
        Calls{{"backward filter", 2}});
}

TEST_CASE("cuDNN's kernel asks for the scratch memory that it needs, or says what it lacks") {
  const Tensor x = Integers({1, 2, 4, 4}), w = Integers({2, 2, 3, 3});
  CHECK(CandidateFor(x, w).config.scratch_bytes == 2 * 2 * 3 * 3 * 8);  // of the fake
  // There is no such device, and cuDNN is not asked.
  CHECK(CandidateFor(x, w, {}, {DeviceType::kCUDA, 7}).config.scratch_bytes == 0);
  // Uneven pads need a padded copy of the image behind that memory, which is rounded up to 512
  // bytes.
  CHECK(CandidateFor(x, w, {{"pads", std::vector<int64_t>{0, 1, 2, 0}}}).config.scratch_bytes ==
        512 + 2 * 6 * 5 * 4);
  CHECK(CandidateFor(Integers({1, 1, 2, 2, 2, 2}), Integers({1, 1, 2, 2, 2, 2})).dropped ==
        "it has at most 3 spatial axes, and the input has 4");
  CHECK(CandidateFor(Integers({0, 2, 4, 4}), w).dropped == "cuDNN has no extent of 0");
  const Arguments more{{"dilations", std::vector<int64_t>{2, 2}},
                       {"output_padding", std::vector<int64_t>{1, 1}}};
  CHECK(CandidateFor(x, Integers({2, 2, 2, 2}), more, kCuda0, "ConvTranspose").dropped ==
        "a step or more of the image lies behind the last window");
  fake::OfferCudnnAlgorithms(false);
  CHECK(CandidateFor(x, w).dropped == "cuDNN has no deterministic algorithm for it");
  fake::OfferCudnnAlgorithms(true);
  fake::FailCudnn(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  CHECK(CandidateFor(x, w).dropped ==
        "cudnnGetConvolutionForwardAlgorithm_v7 failed: CUDNN_STATUS_FAKE");
  fake::FailCudnn(CUDNN_STATUS_SUCCESS);
}

TEST_CASE("a prepared convolution follows the shapes of its inputs") {
  const Tensor w = OnCuda(Integers({2, 2, 3, 3}));
  KeptOperator conv("cudnn", "Conv");
  for (const int64_t extent : {5, 7, 5}) conv.Check({OnCuda(Integers({1, 2, extent, extent})), w});
}

TEST_CASE("failures of cuDNN are errors with the name of the status") {
  const Tensor x = Integers({1, 2, 4, 4}), w = Integers({2, 2, 3, 3});
  fake::FailCudnn(CUDNN_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_WITH_AS(
      RunOnCuda("cudnn", "Conv", {x, w}),
      doctest::Contains("cudnnConvolutionForward failed: CUDNN_STATUS_EXECUTION_FAILED"), Error);
  fake::FailCudnn(CUDNN_STATUS_SUCCESS);
  CheckOnCuda("cudnn", "Conv", {x, w});
}

}  // namespace cudnn_conv_test
