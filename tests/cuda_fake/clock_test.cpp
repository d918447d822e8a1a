// Spans of a profile have the times of the device's clock.
#include "opkit/backends/cuda/clock.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/profile/profiler.hpp"

namespace clock_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};
constexpr int64_t kMs = 1'000'000;

// When its kernel ends, the device's clock says `end`.
class FakeTimedOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    fake::Enqueue(context_.cuda_stream(),
                  [end = GetSingleArgument<int64_t>("end", 0)] { fake::SetClock(end); });
    return !refuses;
  }
  static inline bool refuses = false;
};
OPERATOR_SCHEMA(FakeTimed).NumInputs(0).NumOutputs(0).Arg("end", "");
REGISTER_CUDA_OPERATOR(FakeTimed, FakeTimedOp);

std::unique_ptr<OperatorBase> Timed(Workspace& ws, int64_t end) {
  return CreateOperator(OperatorDef("FakeTimed").Arg("end", end).Device(kCuda0), &ws);
}
std::vector<ProfileSpan> SpansOf(const Profile& profile, const char* name) {
  std::vector<ProfileSpan> found;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == name) found.push_back(span);
  return found;
}
}  // namespace

TEST_CASE("a mark without time has none, and the next launch is not blamed for it") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  const detail::CUDAMark mark = stream.Mark();
  stream.Synchronize();
  CHECK(!detail::CUDAClock::Get(kCuda0).Between(mark, mark));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a span has the time of its work on the device, not of its wait there") {
  Workspace ws;
  auto op = Timed(ws, 7 * kMs + kMs / 2);
  CUDAStream& stream = CUDAStream::Get(kCuda0, 1);
  fake::SetClock(kMs);
  Profiler::Start();
  {
    fake::Gate gate(stream.handle());
    fake::Enqueue(stream.handle(), [] { fake::SetClock(5 * kMs); });  // other work, before it
    op->RunAsync(1);
  }
  op->event().Finish();
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  const auto spans = SpansOf(profile, "FakeTimed");
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].device_end - spans[0].device_begin == 2 * kMs + kMs / 2);
  CHECK(RunTime(spans[0]) == 2 * kMs + kMs / 2);
}

TEST_CASE("a span gets its times although its event has no waiter") {
  Workspace ws;
  auto op = Timed(ws, 3 * kMs);
  fake::SetClock(kMs);
  Profiler::Start();
  op->RunAsync(1);
  fake::Await([&] {
    const auto spans = SpansOf(Profiler::Read(), "FakeTimed");
    return spans.size() == 1 && spans[0].device_end >= 0;
  });
  Profiler::Stop();
  CHECK(RunTime(SpansOf(Profiler::Read(), "FakeTimed")[0]) == 2 * kMs);
}

TEST_CASE("once an event has ended, its times are in the profile") {
  Workspace ws;
  auto op = Timed(ws, 4 * kMs);
  for (int round = 0; round < 50; ++round) {
    fake::SetClock(kMs);
    Profiler::Start();
    op->RunAsync(1);
    fake::Await([&] { return op->event().IsFinished(); });
    Profiler::Stop();
    const auto spans = SpansOf(Profiler::Read(), "FakeTimed");
    REQUIRE(spans.size() == 1);
    CHECK(RunTime(spans[0]) == 3 * kMs);
  }
}

TEST_CASE("a run without a profile is not timed, nor one that fails, nor those after it") {
  Workspace ws;
  fake::SetClock(kMs);
  auto op = Timed(ws, 4 * kMs);
  CUDAStream& stream = CUDAStream::Get(kCuda0, 1);
  Profiler::Start();
  FakeTimedOp::refuses = true;
  CHECK_THROWS_AS(op->RunAsync(1), Error);
  FakeTimedOp::refuses = false;
  stream.Synchronize();
  Profiler::Stop();
  const auto spans = SpansOf(Profiler::Read(), "FakeTimed");
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].device_end == -1);
  const int64_t notices = fake::stream_waits();
  for (int run = 0; run < 4; ++run) {  // the event's two states are used in turn
    op->RunAsync(1);
    stream.Synchronize();
    CHECK(op->event().IsFinished());
  }
  CHECK(fake::stream_waits() == notices);
}

TEST_CASE("the host's time of a mark is as far from the clock's own event as the device's") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  fake::SetClock(11 * kMs);
  const detail::CUDAMark begin = stream.Mark(/*timed=*/true);
  stream.Synchronize();
  fake::SetClock(12 * kMs);
  const detail::CUDAMark end = stream.Mark(/*timed=*/true);
  stream.Synchronize();
  fake::SetClock(kMs);
  static detail::CUDAClock clock(kCuda0);  // passes its mark below
  const int64_t before = detail::MonotonicNs();
  const auto times = clock.Between(begin, end);
  const int64_t after = detail::MonotonicNs();
  REQUIRE(times);
  CHECK(times->end - times->begin == kMs);
  CHECK(times->begin - 10 * kMs >= before);
  CHECK(times->begin - 10 * kMs <= after);
}

}  // namespace clock_test
