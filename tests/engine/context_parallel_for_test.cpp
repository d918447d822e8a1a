#include "opkit/engine/context_parallel_for.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"

namespace context_parallel_for_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::ErrorCode;
using opkit::Event;
using opkit::EventStatus;
using opkit::ParallelFor;

// The work of stream 5 waits until opened.
class Gate {
 public:
  explicit Gate(CPUStreamContext& context) : event_(context.device()) {
    event_.SetScheduled();
    context.WaitEvent(event_);
  }
  ~Gate() { Open(); }
  void Open() {
    if (event_.Query() == EventStatus::kScheduled) event_.SetFinished();
  }

 private:
  Event event_;
};

TEST_CASE("on a CPU context the loop has run when the call returns") {
  CPUContext context;
  std::vector<int> hits(1000, 0);
  ParallelFor(context, 1000, [&hits](int64_t i) { ++hits[static_cast<size_t>(i)]; });
  CHECK(hits == std::vector<int>(1000, 1));
  ParallelFor(
      context, 1000, [&hits](int64_t i) { ++hits[static_cast<size_t>(i)]; }, 10);
  CHECK(hits == std::vector<int>(1000, 2));
}

TEST_CASE("an empty loop calls nothing") {
  CPUContext context;
  CPUStreamContext stream;
  auto fail = [](int64_t) { opkit::Throw(ErrorCode::kInvalidArgument, "called"); };
  for (const int64_t n : {int64_t{0}, int64_t{-3}}) {
    ParallelFor(context, n, fail);
    ParallelFor(stream, n, fail);
  }
  stream.FinishDeviceComputation();
}

TEST_CASE("errors of the body reach the caller on a CPU context") {
  CPUContext context;
  CHECK(ErrorOf([&] {
          ParallelFor(context, 3, [](int64_t i) {
            if (i == 1) opkit::Throw(ErrorCode::kOutOfRange, "one");
          });
        }).message() == "one");
}

TEST_CASE("on a stream the loop is issued, in order, and the call returns") {
  CPUStreamContext context;
  context.SwitchToDevice(5);
  Gate gate(context);
  std::vector<int> values(100, 1);
  int* data = values.data();
  ParallelFor(context, 100, [data](int64_t i) { data[i] += 1; });
  ParallelFor(
      context, 100, [data](int64_t i) { data[i] *= 10; }, 7);
  CHECK(values == std::vector<int>(100, 1));
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(values == std::vector<int>(100, 20));
}

TEST_CASE("the body's captures live until the stream has run it, and no longer") {
  CPUStreamContext context;
  context.SwitchToDevice(5);
  auto shared = std::make_shared<std::atomic<int>>(0);
  {
    Gate gate(context);
    ParallelFor(context, 8, [shared](int64_t) { ++*shared; });
    CHECK(shared.use_count() > 1);
  }
  context.FinishDeviceComputation();
  CHECK(*shared == 8);
  CHECK(shared.use_count() == 1);
}

TEST_CASE("a body for a stream may own objects, also some that cannot be copied") {
  CPUStreamContext context;
  context.SwitchToDevice(5);
  std::vector<int> sums(4, 0);
  int* out = sums.data();
  {
    Gate gate(context);
    std::vector<int> table = {1, 2, 3, 4};
    auto factor = std::make_unique<int>(10);
    ParallelFor(context, 4, [out, table, factor = std::move(factor)](int64_t i) {
      out[i] = *factor * table[static_cast<size_t>(i)];
    });
    table.assign(4, 0);
    CHECK(sums == std::vector<int>(4, 0));
  }
  context.FinishDeviceComputation();
  CHECK(sums == std::vector<int>{10, 20, 30, 40});
}

TEST_CASE("errors of the body reach the event recorded after it") {
  CPUStreamContext context;
  context.SwitchToDevice(5);
  ParallelFor(context, 3, [](int64_t) { opkit::Throw(ErrorCode::kOutOfRange, "late"); });
  Event event(context.device());
  context.Record(event);
  CHECK(ErrorOf([&] { event.Finish(); }).message() == "late");
  CHECK(event.Query() == EventStatus::kFailed);
}

// A device of a user's own, asynchronous by a list.
struct ListContext {
  static constexpr bool kAsynchronous = true;
  std::vector<opkit::UniqueFunction<void()>> work;
  template <class F>
  void Launch(F&& f) {
    work.emplace_back(std::forward<F>(f));
  }
};

TEST_CASE("a user's own context gets the loop as one piece of work") {
  ListContext context;
  int sum = 0;
  ParallelFor(
      context, 5, [&sum](int64_t i) { sum += static_cast<int>(i); }, 5);
  CHECK(sum == 0);
  REQUIRE(context.work.size() == 1);
  context.work[0]();
  CHECK(sum == 10);
}

TEST_CASE("a host context is one that work can be launched on") {
  CHECK(opkit::detail::HostContext<CPUContext>);
  CHECK(opkit::detail::HostContext<CPUStreamContext>);
  CHECK_FALSE(opkit::detail::HostContext<int>);
}

}  // namespace
}  // namespace context_parallel_for_test
