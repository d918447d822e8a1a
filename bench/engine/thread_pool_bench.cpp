// The thread pool against oneTBB on the same work: submit one task and wait, awake and after a
// pause, groups of 1,000 empty tasks, and loops over y = a * y + x of several lengths. Names end in
// the number of threads.
#include <benchmark/benchmark.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
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
    opkit::detail::Latch latch(1);
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

// The same after all threads have gone to sleep; the pause is not measured. Polls for the task's
// end, because a thread that waits in the pool would run the task itself.
template <class Submit>
void AfterAPause(benchmark::State& state, Submit submit) {
  std::atomic<int> done{0};
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done = 0;
    const auto start = std::chrono::steady_clock::now();
    submit(done);
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - start).count());
  }
}
void SubmitParked(benchmark::State& state) {
  opkit::ThreadPool& pool = Pool(2);
  AfterAPause(state, [&](std::atomic<int>& done) {
    pool.Submit([&] { done = 1; });
    while (done == 0) benchmark::ClobberMemory();
  });
}
BENCHMARK(SubmitParked)->Iterations(2000)->UseManualTime();
void SubmitParkedAndWait(benchmark::State& state) {
  opkit::ThreadPool& pool = Pool(2);
  AfterAPause(state, [&](std::atomic<int>&) {
    opkit::detail::Latch latch(1);
    pool.Submit([&] { latch.CountDown(); });
    pool.Wait(latch);
  });
}
BENCHMARK(SubmitParkedAndWait)->Iterations(2000)->UseManualTime();
void SubmitParkedTbb(benchmark::State& state) {
  tbb::task_arena arena(2);
  AfterAPause(state, [&](std::atomic<int>& done) {
    arena.enqueue([&] { done = 1; });
    while (done == 0) benchmark::ClobberMemory();
  });
}
BENCHMARK(SubmitParkedTbb)->Iterations(2000)->UseManualTime();
void SubmitParkedAndWaitTbb(benchmark::State& state) {
  tbb::task_arena arena(2);
  AfterAPause(state, [&](std::atomic<int>&) {
    arena.execute([&] {
      tbb::task_group group;
      group.run([] {});
      group.wait();
    });
  });
}
BENCHMARK(SubmitParkedAndWaitTbb)->Iterations(2000)->UseManualTime();

// Measures how long the machine takes to wake a thread that sleeps in a futex: the time of the
// waking thread, and the time until the other thread runs. The rows above cannot be faster.
class Sleeper {
 public:
  ~Sleeper() {
    Wake(2);
    thread_.join();
  }
  void Wake(int word) {
    word_ = word;
    syscall(SYS_futex, reinterpret_cast<int*>(&word_), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void AwaitRun() const {
    while (word_ != 0) benchmark::ClobberMemory();
  }

 private:
  std::atomic<int> word_{0};
  std::thread thread_{[this] {
    while (word_ != 2) {
      word_ = 0;
      while (word_ == 0)
        syscall(SYS_futex, reinterpret_cast<int*>(&word_), FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr,
                0);
    }
  }};
};
void FutexWake(benchmark::State& state) {
  Sleeper sleeper;
  AfterAPause(state, [&](std::atomic<int>&) { sleeper.Wake(1); });
}
BENCHMARK(FutexWake)->Iterations(2000)->UseManualTime();
void FutexWakeAndRun(benchmark::State& state) {
  Sleeper sleeper;
  AfterAPause(state, [&](std::atomic<int>&) {
    sleeper.Wake(1);
    sleeper.AwaitRun();
  });
}
BENCHMARK(FutexWakeAndRun)->Iterations(2000)->UseManualTime();

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

// Lengths of loops: too short to share, a few microseconds, larger than the caches.
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

// Two threads, with automatic or given grain.
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
