// The dynamic engine against oneTBB's task_group and a pool of one queue under a mutex: empty
// operations, from push to completion. Chain: each operation depends on the one before.
// Independent: each operation has its own Var. Names end in the number of threads and of
// operations. The peers have no dependencies: a task of their chains submits the next task.
#include <benchmark/benchmark.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "opkit/engine/engine.hpp"

namespace {

void Sizes(benchmark::internal::Benchmark* bench) {
  for (int threads : {1, 2})
    for (int ops : {1000, 10'000, 100'000}) bench->Args({threads, ops});
  bench->UseRealTime();
}
void CountOps(benchmark::State& state) {
  const auto ops = static_cast<double>(state.iterations() * state.range(1));
  state.counters["per_op"] =
      benchmark::Counter(ops, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void EngineChain(benchmark::State& state) {
  opkit::Engine engine({.threads = static_cast<int>(state.range(0))});
  const opkit::Var v = engine.NewVar();
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(1); ++i) engine.Push([] {}, {}, {v});
    engine.WaitForAll();
  }
  CountOps(state);
}
BENCHMARK(EngineChain)->Apply(Sizes);

void EngineIndependent(benchmark::State& state) {
  opkit::Engine engine({.threads = static_cast<int>(state.range(0))});
  std::vector<opkit::Var> vars;
  for (int64_t i = 0; i < state.range(1); ++i) vars.push_back(engine.NewVar());
  for (auto _ : state) {
    for (const opkit::Var& v : vars) engine.Push([] {}, {}, {v});
    engine.WaitForAll();
  }
  CountOps(state);
}
BENCHMARK(EngineIndependent)->Apply(Sizes);

void EngineNoVars(benchmark::State& state) {
  opkit::Engine engine({.threads = static_cast<int>(state.range(0))});
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(1); ++i) engine.Push([] {}, {}, {});
    engine.WaitForAll();
  }
  CountOps(state);
}
BENCHMARK(EngineNoVars)->Apply(Sizes);

void EnginePushOneAndWait(benchmark::State& state) {
  opkit::Engine engine({.threads = static_cast<int>(state.range(0))});
  const opkit::Var v = engine.NewVar();
  for (auto _ : state) {
    engine.Push([] {}, {}, {v});
    engine.WaitForVar(v);
  }
}
BENCHMARK(EnginePushOneAndWait)->Arg(1)->Arg(2)->UseRealTime();

void NaiveEngineChain(benchmark::State& state) {
  opkit::Engine engine({.naive = true});
  const opkit::Var v = engine.NewVar();
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(1); ++i) engine.Push([] {}, {}, {v});
    engine.WaitForAll();
  }
  CountOps(state);
}
BENCHMARK(NaiveEngineChain)->Args({1, 10'000})->UseRealTime();

// --- peers

void TbbIndependent(benchmark::State& state) {
  tbb::task_arena arena(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    arena.execute([&] {
      tbb::task_group group;
      for (int64_t i = 0; i < state.range(1); ++i) group.run([] {});
      group.wait();
    });
  }
  CountOps(state);
}
BENCHMARK(TbbIndependent)->Apply(Sizes);

struct TbbLink {
  tbb::task_group* group;
  int64_t left;
  void operator()() const {
    if (left > 1) group->run(TbbLink{group, left - 1});
  }
};
void TbbChain(benchmark::State& state) {
  tbb::task_arena arena(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    arena.execute([&] {
      tbb::task_group group;
      group.run(TbbLink{&group, state.range(1)});
      group.wait();
    });
  }
  CountOps(state);
}
BENCHMARK(TbbChain)->Apply(Sizes);

class MutexQueuePool {
 public:
  explicit MutexQueuePool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
  }
  MutexQueuePool(const MutexQueuePool&) = delete;
  MutexQueuePool& operator=(const MutexQueuePool&) = delete;
  ~MutexQueuePool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Submit(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      ++pending_;
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void Serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      if (--pending_ == 0) done_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_, done_;
  std::deque<std::function<void()>> queue_;
  int64_t pending_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

void MutexPoolIndependent(benchmark::State& state) {
  MutexQueuePool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(1); ++i) pool.Submit([] {});
    pool.Wait();
  }
  CountOps(state);
}
BENCHMARK(MutexPoolIndependent)->Apply(Sizes);

struct MutexPoolLink {
  MutexQueuePool* pool;
  int64_t left;
  void operator()() const {
    if (left > 1) pool->Submit(MutexPoolLink{pool, left - 1});
  }
};
void MutexPoolChain(benchmark::State& state) {
  MutexQueuePool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.Submit(MutexPoolLink{&pool, state.range(1)});
    pool.Wait();
  }
  CountOps(state);
}
BENCHMARK(MutexPoolChain)->Apply(Sizes);

}  // namespace
