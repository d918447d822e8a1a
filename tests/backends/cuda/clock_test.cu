#include "opkit/backends/cuda/clock.hpp"

#include <algorithm>

#include "device.cuh"
#include "opkit/graph/executor.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/profile/profiler.hpp"

namespace cuda_clock_test {
using namespace opkit;

constexpr int64_t kMs = 1'000'000;

__global__ void SpinFor(int64_t ns) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < static_cast<uint64_t>(ns));
}

class SpinOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), DType::kFloat32)->mutable_data<float>();
    SpinFor<<<1, 1, 0, context_.cuda_stream()>>>(3 * kMs);
    return true;
  }
};
OPERATOR_SCHEMA(CudaTestSpin).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(CudaTestSpin, SpinOp);

std::vector<ProfileSpan> SpansOf(const Profile& profile, const char* name) {
  std::vector<ProfileSpan> found;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == name) found.push_back(span);
  std::ranges::sort(found, {}, &ProfileSpan::device_begin);
  return found;
}

}  // namespace cuda_clock_test

using namespace cuda_clock_test;

TEST_CASE("spans of a chain have the times of their kernels, in the order of the stream") {
  NEEDS_CUDA_DEVICE();
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {1}, kCuda0);
  for (int i = 0; i < 4; ++i)
    graph.AddNode(
        OperatorDef("CudaTestSpin", {StrCat("v", i)}, {StrCat("v", i + 1)}).Device(kCuda0));
  graph.AddOutput("v4");
  Executor executor(Compile(graph, {.threads = 1}));
  const Tensor x = ToCuda({1});
  executor.Run({{"v0", x}});
  Profiler::Start();
  executor.Run({{"v0", x}});
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  const auto spans = SpansOf(profile, "CudaTestSpin"), runs = SpansOf(profile, "Executor::Run");
  REQUIRE(spans.size() == 4);
  REQUIRE(runs.size() == 1);
  for (size_t i = 0; i < spans.size(); ++i) {
    // The two clocks agree to some 10 us, and the device's has steps of about a microsecond.
    CHECK(spans[i].device_end - spans[i].device_begin >= 3 * kMs - 10'000);
    CHECK(spans[i].device_begin >= spans[i].begin - 100'000);
    if (i > 0) CHECK(spans[i].device_begin >= spans[i - 1].device_end - 10'000);
    CHECK(spans[i].device_end <= runs[0].end + 100'000);
  }
}
