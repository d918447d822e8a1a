// The cost of a profile: an empty operator without a profile, with one, and inside another
// operator; scopes and counters; decoding and writing ten million spans. Peers: the common way (two
// steady_clock reads pushed to a vector under a mutex) and the cheapest way (two reads of the
// processor's clock into a ring).
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <vector>

#include "opkit/interop/google_benchmark.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/profiler.hpp"

namespace {

using opkit::Profiler;
using opkit::ProfileScope;

class EmptyOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};
class InvokerOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  static constexpr int kTimes = 100;
  InvokerOp(const opkit::OperatorDef& def, opkit::Workspace* ws)
      : Operator(def, ws), empty_(opkit::OperatorDef("Empty"), ws) {
    set_invocation_kind(opkit::Invocation::Kind::kCustomOperator);
  }
  bool RunOnDevice() override {
    for (int i = 0; i < kTimes; ++i) empty_.Run();
    return true;
  }

 private:
  EmptyOp empty_;
};

// A ring of a few MB, so that a benchmark of any length runs in the same memory.
struct Recording {
  explicit Recording(bool wanted = true) : wanted(wanted) {
    if (wanted) Profiler::Start({.max_bytes = 8 << 20, .ring = true});
  }
  Recording(Recording&&) = delete;
  ~Recording() {
    if (wanted) Profiler::Stop();
  }
  bool wanted;
};

template <class Op>
void RunOperator(benchmark::State& state, bool recorded, int spans) {
  opkit::Workspace ws;
  Op op(opkit::OperatorDef("Bench"), &ws);
  opkit::OperatorBase* base = &op;
  benchmark::DoNotOptimize(base);
  const Recording recording(recorded);
  for (auto _ : state) benchmark::DoNotOptimize(base->Run());
  state.SetItemsProcessed(state.iterations() * spans);
}
void OperatorOff(benchmark::State& state) { RunOperator<EmptyOp>(state, false, 1); }
BENCHMARK(OperatorOff);
void OperatorOn(benchmark::State& state) { RunOperator<EmptyOp>(state, true, 1); }
BENCHMARK(OperatorOn);
void SubOperatorsOff(benchmark::State& state) {
  RunOperator<InvokerOp>(state, false, InvokerOp::kTimes);
}
BENCHMARK(SubOperatorsOff);
void SubOperatorsOn(benchmark::State& state) {
  RunOperator<InvokerOp>(state, true, InvokerOp::kTimes);
}
BENCHMARK(SubOperatorsOn);

void ScopeOff(benchmark::State& state) {
  for (auto _ : state) const ProfileScope scope("scope");
}
BENCHMARK(ScopeOff);
void ScopeOn(benchmark::State& state) {
  const Recording recording;
  for (auto _ : state) const ProfileScope scope("scope");
}
BENCHMARK(ScopeOn);
void CounterOn(benchmark::State& state) {
  const Recording recording;
  for (auto _ : state) opkit::ProfileCount("counter", 1);
}
BENCHMARK(CounterOn);

// The peers.
void ClocksUnderMutex(benchmark::State& state) {
  struct Span {
    const char* name;
    std::chrono::steady_clock::time_point begin, end;
  };
  std::mutex mutex;
  std::vector<Span> spans;
  spans.reserve(size_t{1} << 16);
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    benchmark::ClobberMemory();
    const auto end = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex);
    if (spans.size() == spans.capacity()) spans.clear();
    spans.push_back({"span", begin, end});
  }
}
BENCHMARK(ClocksUnderMutex);
void TicksIntoRing(benchmark::State& state) {
  std::vector<std::pair<uint64_t, uint64_t>> ring(size_t{1} << 16);
  size_t at = 0;
  for (auto _ : state) {
    const uint64_t begin = opkit::detail::Ticks();
    benchmark::ClobberMemory();
    ring[at++ & (ring.size() - 1)] = {begin, opkit::detail::Ticks()};
  }
  benchmark::DoNotOptimize(ring.data());
}
BENCHMARK(TicksIntoRing);

constexpr int kMany = 10'000'000;
void RecordMany() {
  Profiler::Start();
  for (int i = 0; i < kMany; ++i) const ProfileScope scope("scope");
  Profiler::Stop();
}
void RecordTenMillion(benchmark::State& state) {
  for (auto _ : state) RecordMany();
  state.SetItemsProcessed(state.iterations() * kMany);
}
BENCHMARK(RecordTenMillion)->Unit(benchmark::kMillisecond);
void ReadTenMillion(benchmark::State& state) {
  RecordMany();
  for (auto _ : state) benchmark::DoNotOptimize(Profiler::Read());
  state.SetItemsProcessed(state.iterations() * kMany);
}
BENCHMARK(ReadTenMillion)->Unit(benchmark::kMillisecond);
void WriteChromeTraceOfTenMillion(benchmark::State& state) {
  RecordMany();
  const opkit::Profile profile = Profiler::Read();
  const char* path = "/dev/shm/opkit_profiler_bench.json";
  int64_t bytes = 0;
  for (auto _ : state) opkit::SaveChromeTrace(profile, path);
  if (FILE* file = std::fopen(path, "r")) {
    std::fseek(file, 0, SEEK_END);
    bytes = std::ftell(file);
    std::fclose(file);
  }
  unlink(path);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.SetItemsProcessed(state.iterations() * kMany);
}
BENCHMARK(WriteChromeTraceOfTenMillion)->Unit(benchmark::kMillisecond);

}  // namespace
