// A frozen graph of 10,000 tasks of some 35 ns on two threads, while a spinning thread takes a core
// and gives it back. Compares the mode that measurement chooses with each fixed mode. Names are
// Contender/cores; times are the mean of a run, from the 100th after the change on.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "opkit/engine/task_graph.hpp"

namespace {

using namespace opkit;

FrozenTaskGraph Freeze(ReplayMode mode) {
  TaskGraph graph;
  for (int i = 0; i < 10'000; ++i)
    graph.Add([] {
      for (int step = 0; step < 100; ++step) benchmark::DoNotOptimize(step);
    });
  return graph.Freeze({.threads = 2, .mode = mode});
}

// Spins on one core during its lifetime.
class TakenCore {
 public:
  TakenCore()
      : thread_([this] {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(0, &one);
          sched_setaffinity(0, sizeof(one), &one);
          while (!stop_.load(std::memory_order_relaxed)) {  // relaxed: the flag guards no data
          }
        }) {}
  ~TakenCore() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double MeanNs(FrozenTaskGraph& graph) {
  constexpr int kSettle = 100, kTimed = 200;
  for (int run = 0; run < kSettle; ++run) graph.Run();
  const auto start = std::chrono::steady_clock::now();
  for (int run = 0; run < kTimed; ++run) graph.Run();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / kTimed;
}

// Alternates between both states, so that each measurement comes after a change.
void Measure(benchmark::State& state, ReplayMode mode, bool taken) {
  FrozenTaskGraph graph = Freeze(mode);
  for (auto _ : state)
    for (const bool now_taken : {!taken, taken}) {
      std::optional<TakenCore> core;
      if (now_taken) core.emplace();
      const double ns = MeanNs(graph);
      if (now_taken == taken) state.SetIterationTime(ns * 1e-9);
    }
}

const bool registered = [] {
  for (const bool taken : {false, true})
    for (const auto& [name, mode] :
         {std::pair("Auto", ReplayMode::kAuto), std::pair("Walk", ReplayMode::kWalk),
          std::pair("Levels", ReplayMode::kLevels), std::pair("Counters", ReplayMode::kCounters)})
      benchmark::RegisterBenchmark(
          StrCat(name, taken ? "/taken" : "/free").c_str(),
          [=, mode = mode](benchmark::State& state) { Measure(state, mode, taken); })
          ->UseManualTime()
          ->Iterations(3);
  return true;
}();

}  // namespace
