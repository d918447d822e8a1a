// The thread pool against oneTBB on the same work: submit one task and wait, groups of 1,000 empty
// tasks, and loops over y = a * y + x of several lengths. Names end in the number of threads.
#include <benchmark/benchmark.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <vector>

#include "opkit/engine/parallel_for.hpp"
#include "opkit/engine/task_group.hpp"

namespace {

opkit::ThreadPool& Pool(int64_t threads) {
  static opkit::ThreadPool one(1), two(2);
  return threads == 1 ? one : two;
}

void SubmitAndWait(benchmark::State& state) {
  opkit::ThreadPool& pool = Pool(state.range(0));
  for (auto _ : state) {
    opkit::Latch latch(1);
    pool.Submit([&] { latch.CountDown(); });
    pool.Wait(latch);
  }
}
BENCHMARK(SubmitAndWait)->Arg(1)->Arg(2)->UseRealTime();

void SubmitAndWaitTbb(benchmark::State& state) {
  tbb::task_arena arena(static_cast<int>(state.range(0)));
  arena.execute([&] {
    for (auto _ : state) {
      tbb::task_group group;
      group.run([] {});
      group.wait();
    }
  });
}
BENCHMARK(SubmitAndWaitTbb)->Arg(1)->Arg(2)->UseRealTime();

constexpr int kTasks = 1000;

void TaskGroup(benchmark::State& state) {
  opkit::TaskGroup group(Pool(state.range(0)));
  for (auto _ : state) {
    for (int i = 0; i < kTasks; ++i) group.Run([] {});
    group.Wait();
  }
  state.SetItemsProcessed(state.iterations() * kTasks);
}
BENCHMARK(TaskGroup)->Arg(1)->Arg(2)->UseRealTime();

void TaskGroupTbb(benchmark::State& state) {
  tbb::task_arena arena(static_cast<int>(state.range(0)));
  for (auto _ : state)
    arena.execute([&] {
      tbb::task_group group;
      for (int i = 0; i < kTasks; ++i) group.run([] {});
      group.wait();
    });
  state.SetItemsProcessed(state.iterations() * kTasks);
}
BENCHMARK(TaskGroupTbb)->Arg(1)->Arg(2)->UseRealTime();

// Lengths: too short to share, a few microseconds, larger than the caches.
void Lengths(benchmark::internal::Benchmark* bench) {
  bench->Arg(8)->Arg(1000)->Arg(100'000)->Arg(1 << 22)->UseRealTime();
}
std::vector<float> g_x(1 << 22, 1.f), g_y(1 << 22, 2.f);

void LoopPlain(benchmark::State& state) {
  const float* x = g_x.data();
  float* y = g_y.data();
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(0); ++i) y[i] = 0.5f * y[i] + x[i];
    benchmark::ClobberMemory();
  }
}
BENCHMARK(LoopPlain)->Apply(Lengths);

// Two threads, automatic grain or the one given.
template <int64_t kGrain>
void LoopParallelFor(benchmark::State& state) {
  opkit::PoolScope scope(Pool(2));
  const float* x = g_x.data();
  float* y = g_y.data();
  for (auto _ : state) {
    opkit::ParallelFor(
        state.range(0), [=](int64_t i) { y[i] = 0.5f * y[i] + x[i]; }, kGrain);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(LoopParallelFor<opkit::kAutoGrain>)->Name("LoopParallelForAuto")->Apply(Lengths);
BENCHMARK(LoopParallelFor<10'000>)->Name("LoopParallelForGrain10000")->Apply(Lengths);

void LoopTbb(benchmark::State& state) {
  tbb::task_arena arena(2);
  const float* x = g_x.data();
  float* y = g_y.data();
  arena.execute([&] {
    for (auto _ : state) {
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, state.range(0)), [=](const auto& range) {
        for (int64_t i = range.begin(); i < range.end(); ++i) y[i] = 0.5f * y[i] + x[i];
      });
      benchmark::ClobberMemory();
    }
  });
}
BENCHMARK(LoopTbb)->Apply(Lengths);

}  // namespace
