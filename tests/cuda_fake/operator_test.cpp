#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"
#include "opkit/op/registration.hpp"

namespace operator_test {
using namespace opkit;

namespace {

// A kernel of host code: launched as a library call would be.
class FakeScaleOp final : public Operator<CUDAContext> {
 public:
  FakeScaleOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {}
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    fake::Enqueue(context_.cuda_stream(), [from = x.data<float>(), to = y->mutable_data<float>(),
                                           n = x.numel(), scale = scale_] {
      for (int64_t i = 0; i < n; ++i) to[i] = scale * from[i];
    });
    if (HasArgument("bad_launch")) fake::SetLastError(cudaErrorInvalidConfiguration);
    return !HasArgument("refuse");
  }

 private:
  float scale_;
};

OPERATOR_SCHEMA(FakeScale)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("scale", "")
    .Arg("bad_launch", "")
    .Arg("refuse", "");
REGISTER_CUDA_OPERATOR(FakeScale, FakeScaleOp);

constexpr Device kCuda0{DeviceType::kCUDA, 0};

OperatorDef Scale(const char* from, const char* to, float scale) {
  return OperatorDef("FakeScale").Input(from).Output(to).Arg("scale", scale).Device(kCuda0);
}
std::vector<float> OnHost(const Tensor& tensor) {
  Tensor host;
  Copy(tensor, &host);
  return host.ToVector<float>();
}

}  // namespace

TEST_CASE("an operator runs on CUDA to completion, and asynchronously") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor(kCuda0);
  Copy(Tensor::From<float>({3}, {1, 2, 3}), x);
  auto op = CreateOperator(Scale("X", "Y", 2.f), &ws);
  CHECK(op->HasAsyncPart());
  CHECK(op->SupportsAsyncScheduling());
  CHECK(op->Run());
  CHECK(OnHost(*ws.GetTensor("Y")) == std::vector<float>{2, 4, 6});

  fake::Gate gate(CUDAStream::Get(kCuda0, 1).handle());
  CHECK(op->RunAsync(1));
  CHECK(op->event().Query() == EventStatus::kScheduled);
  CHECK(!op->IsStreamFree(1));
  gate.Open();
  op->event().Finish();
  CHECK(OnHost(*ws.GetTensor("Y")) == std::vector<float>{2, 4, 6});
}

TEST_CASE("operators on different streams run in the order of their events") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor(kCuda0);
  Copy(Tensor::From<float>({2}, {1, 2}), x);
  auto first = CreateOperator(Scale("X", "Y", 2.f), &ws);
  auto second = CreateOperator(Scale("Y", "Z", 5.f), &ws);
  {
    fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
    first->RunAsync(0);
    second->Wait(*first, 1);
    second->RunAsync(1);
    CHECK(second->event().Query() == EventStatus::kScheduled);
  }
  second->event().Finish();
  CHECK(OnHost(*ws.GetTensor("Z")) == std::vector<float>{10, 20});
}

TEST_CASE("a failure while issuing is thrown and fails the event, with the operator's context") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor({2}, DType::kFloat32, kCuda0);
  auto op = CreateOperator(Scale("X", "Y", 2.f).Arg("bad_launch", int64_t{1}), &ws);
  CHECK_THROWS_WITH_AS(op->RunAsync(), doctest::Contains("cudaErrorInvalidConfiguration"), Error);
  CHECK(op->event().Query() == EventStatus::kFailed);
  CHECK(op->event().ErrorMessage().find("in operator FakeScale") != std::string::npos);
  CHECK_THROWS_WITH_AS(op->Run(), doctest::Contains("check the grid, block"), Error);
  auto refusing = CreateOperator(Scale("X", "Y", 2.f).Arg("refuse", int64_t{1}), &ws);
  CHECK_THROWS_WITH_AS(refusing->Run(), doctest::Contains("RunOnDevice returned false"), Error);
}

TEST_CASE("a cancelled operator and its workspace may be gone before the device is done") {
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  fake::Await([&] { return allocator.live_bytes() == 0; });  // what earlier tests left on its way
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  fake::Gate gate(stream.handle());
  {
    Workspace ws;
    *ws.CreateTensor("X") = Tensor({1000}, DType::kFloat32, kCuda0);
    auto op = CreateOperator(Scale("X", "Y", 2.f), &ws);
    op->RunAsync(0);
    op->Cancel();
    CHECK_THROWS_WITH_AS(op->event().Finish(), doctest::Contains("cancelled"), Error);
  }
  CHECK(allocator.live_bytes() == 8000);
  gate.Open();
  fake::Await([&] { return allocator.live_bytes() == 0; });
}

TEST_CASE("an operator without an event keeps its memory until the stream has come past it") {
  Workspace ws;
  static float room[4] = {1, 2, 3, 4};
  static std::atomic<bool> gone;
  gone = false;
  *ws.CreateTensor("X") =
      Tensor(AdoptStorage(kCuda0, room, sizeof(room), [](void*, void*) { gone = true; }), 0, {4},
             DType::kFloat32);
  auto op = CreateOperator(Scale("X", "Y", 2.f), &ws);
  op->DisableEvent();
  op->Run(0);
  fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  op->RunAsync(0);
  ws.GetTensor("X")->Reset();
  CHECK(!gone);
  gate.Open();
  fake::Await([&] { return gone.load(); });
  auto failing = CreateOperator(Scale("Y", "Z", 2.f).Arg("bad_launch", int64_t{1}), &ws);
  failing->DisableEvent();
  CHECK_THROWS_WITH_AS(failing->RunAsync(), doctest::Contains("cudaErrorInvalidConfiguration"),
                       Error);
}

TEST_CASE("an operator without an event that runs again keeps its memory once") {
  detail::CUDACompletions::Global().WaitUntilIdle();
  Workspace ws;
  *ws.CreateTensor("X") = Tensor({4}, DType::kFloat32, kCuda0);
  ws.GetTensor("X")->mutable_data<float>();
  auto op = CreateOperator(Scale("X", "Y", 2.f), &ws);
  op->DisableEvent();
  fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  for (int run = 0; run < 2; ++run) op->RunAsync(0);
  const int64_t kept = ws.GetTensor("X")->storage().use_count();
  for (int run = 0; run < 100; ++run) op->RunAsync(0);
  CHECK(ws.GetTensor("X")->storage().use_count() == kept);
}

TEST_CASE("the operator of a missing device is an error") {
  Workspace ws;
  ws.CreateTensor("X");
  try {
    CreateOperator(Scale("X", "Y", 1.f).Device({DeviceType::kCUDA, 5}), &ws);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(std::string(error.what()).find("there is no cuda:5: this machine has 4 CUDA devices") ==
          0);
  }
}

}  // namespace operator_test
