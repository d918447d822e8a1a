// The frozen task graph against peers on the same graphs: a serial loop over counters, oneTBB's
// flow graph, Eigen's thread pool with counters where Eigen is installed, and a pool around one
// mutex. Names are Contender/shape/nodes/threads; times are of one node. Then tasks that take time,
// and building.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "opkit/engine/task_graph.hpp"

#if __has_include(<eigen3/unsupported/Eigen/CXX11/ThreadPool>)
#include <eigen3/unsupported/Eigen/CXX11/ThreadPool>
#define HAS_EIGEN
#endif

namespace {

void Empty() { asm volatile(""); }

// Keeps the core busy for `ns`, by a loop whose speed is measured once.
void Spin(int64_t ns) {
  static const double loops_per_ns = [] {
    constexpr int64_t kLoops = 10'000'000;
    const int64_t start = opkit::detail::MonotonicNs();
    for (int64_t i = 0; i < kLoops; ++i) asm volatile("");
    return static_cast<double>(kLoops) / static_cast<double>(opkit::detail::MonotonicNs() - start);
  }();
  const auto loops = static_cast<int64_t>(static_cast<double>(ns) * loops_per_ns);
  for (int64_t i = 0; i < loops; ++i) asm volatile("");
}

// --- graphs

struct Shape {
  int nodes = 0;
  std::vector<opkit::ScheduleEdge> edges;
  std::vector<int> begin, successors, degree;  // for the peers
};

Shape MakeShape(const std::string& name, int n) {
  Shape shape{n, {}, {}, {}, {}};
  if (name == "chain") {
    for (int i = 1; i < n; ++i) shape.edges.push_back({i - 1, i});
  } else if (name == "grid") {
    const int side = static_cast<int>(std::lround(std::sqrt(n)));
    shape.nodes = side * side;
    for (int i = 0; i < side; ++i) {
      for (int j = 0; j < side; ++j) {
        if (i > 0) shape.edges.push_back({(i - 1) * side + j, i * side + j});
        if (j > 0) shape.edges.push_back({i * side + j - 1, i * side + j});
      }
    }
  } else if (name == "random") {
    std::mt19937 random(1);
    for (int i = 1; i < n; ++i)
      for (int k = 0; k < 2; ++k)
        shape.edges.push_back({static_cast<int>(random() % static_cast<unsigned>(i)), i});
  }
  shape.begin.assign(static_cast<size_t>(shape.nodes) + 1, 0);
  shape.degree.assign(static_cast<size_t>(shape.nodes), 0);
  for (const auto& edge : shape.edges) {
    ++shape.begin[static_cast<size_t>(edge.from) + 1];
    ++shape.degree[static_cast<size_t>(edge.to)];
  }
  for (size_t i = 1; i < shape.begin.size(); ++i) shape.begin[i] += shape.begin[i - 1];
  shape.successors.resize(shape.edges.size());
  std::vector<int> at(shape.begin);
  for (const auto& edge : shape.edges)
    shape.successors[static_cast<size_t>(at[static_cast<size_t>(edge.from)]++)] = edge.to;
  return shape;
}

const Shape& ShapeOf(const std::string& name, int n) {
  static std::map<std::string, Shape> shapes;
  const std::string key = name + std::to_string(n);
  if (!shapes.contains(key)) shapes[key] = MakeShape(name, n);
  return shapes[key];
}

// --- contenders: built once, run often

struct Runner {
  virtual ~Runner() = default;
  virtual void Run() = 0;
  virtual std::string Label() const { return ""; }
};

template <class Task>
opkit::TaskGraph Build(const Shape& shape, Task task) {
  opkit::TaskGraph graph;
  for (int i = 0; i < shape.nodes; ++i) graph.Add(task);
  for (const auto& edge : shape.edges) graph.Precede({edge.from}, {edge.to});
  return graph;
}

struct Ours : Runner {
  template <class Task>
  Ours(const Shape& shape, int threads, opkit::ReplayMode mode, Task task)
      : frozen(Build(shape, task).Freeze({.threads = threads, .mode = mode})) {
    for (int i = 0; i < 400 && !frozen.settled(); ++i) frozen.Run();
  }
  void Run() override { frozen.Run(); }
  std::string Label() const override { return ToString(frozen.mode()); }
  opkit::FrozenTaskGraph frozen;
};

struct SerialLoop : Runner {
  SerialLoop(const Shape& shape, void (*task)())
      : shape(shape), task(task), counters(shape.degree.size()), ready(shape.degree.size()) {}
  void Run() override {
    std::memcpy(counters.data(), shape.degree.data(), counters.size() * sizeof(int));
    size_t end = 0;
    for (size_t i = 0; i < counters.size(); ++i)
      if (counters[i] == 0) ready[end++] = static_cast<int>(i);
    for (size_t at = 0; at < end; ++at) {
      const auto node = static_cast<size_t>(ready[at]);
      task();
      for (int s = shape.begin[node]; s < shape.begin[node + 1]; ++s) {
        const int next = shape.successors[static_cast<size_t>(s)];
        if (--counters[static_cast<size_t>(next)] == 0) ready[end++] = next;
      }
    }
  }
  const Shape& shape;
  void (*task)();
  std::vector<int> counters, ready;
};

struct TbbFlow : Runner {
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
  TbbFlow(const Shape& shape, int threads, void (*task)()) : arena(threads) {
    arena.execute([&] {
      graph = std::make_unique<tbb::flow::graph>();
      for (int i = 0; i < shape.nodes; ++i)
        nodes.emplace_back(*graph, [task](const tbb::flow::continue_msg&) { task(); });
      for (const auto& edge : shape.edges) {
        tbb::flow::make_edge(nodes[static_cast<size_t>(edge.from)],
                             nodes[static_cast<size_t>(edge.to)]);
      }
      for (size_t i = 0; i < nodes.size(); ++i)
        if (shape.degree[i] == 0) roots.push_back(&nodes[i]);
    });
  }
  void Run() override {
    arena.execute([&] {
      for (Node* root : roots) root->try_put(tbb::flow::continue_msg());
      graph->wait_for_all();
    });
  }
  tbb::task_arena arena;
  std::unique_ptr<tbb::flow::graph> graph;
  std::deque<Node> nodes;
  std::vector<Node*> roots;
};

// Counters over any pool with Schedule(function). Schedules every ready node; with kInline the
// first ready successor runs at once instead.
template <class Pool, bool kInline>
struct CountersOver : Runner {
  CountersOver(const Shape& shape, Pool& pool, void (*task)())
      : shape(shape), pool(pool), task(task), counters(shape.degree.size()) {}
  void Run() override {
    for (size_t i = 0; i < counters.size(); ++i)
      counters[i].store(shape.degree[i], std::memory_order_relaxed);
    left = shape.nodes;
    for (int i = 0; i < shape.nodes; ++i)
      if (shape.degree[static_cast<size_t>(i)] == 0) pool.Schedule([this, i] { Execute(i); });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return left.load() == 0; });
  }
  void Execute(int node) {
    while (node >= 0) {
      task();
      int next = -1;
      const auto at = static_cast<size_t>(node);
      for (int s = shape.begin[at]; s < shape.begin[at + 1]; ++s) {
        const int successor = shape.successors[static_cast<size_t>(s)];
        if (counters[static_cast<size_t>(successor)].fetch_sub(1) != 1) continue;
        if (kInline && next < 0)
          next = successor;
        else
          pool.Schedule([this, successor] { Execute(successor); });
      }
      if (left.fetch_sub(1) == 1) {
        std::lock_guard lock(mutex);
        done.notify_all();
      }
      node = next;
    }
  }
  const Shape& shape;
  Pool& pool;
  void (*task)();
  std::vector<std::atomic<int>> counters;
  std::atomic<int> left{0};
  std::mutex mutex;
  std::condition_variable done;
};

class MutexPool {
 public:
  explicit MutexPool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        for (;;) {
          std::function<void()> work;
          {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
            if (queue_.empty()) return;
            work = std::move(queue_.front());
            queue_.pop_front();
          }
          work();
        }
      });
    }
  }
  ~MutexPool() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Schedule(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

template <class Pool>
Pool& PoolOf(int threads) {
  static std::map<int, std::unique_ptr<Pool>> pools;
  if (!pools[threads]) pools[threads] = std::make_unique<Pool>(threads);
  return *pools[threads];
}

template <class Make>
void Register(const std::string& contender, const std::string& shape, int nodes, int threads,
              Make make) {
  const std::string name =
      contender + "/" + shape + "/" + std::to_string(nodes) + "/" + std::to_string(threads);
  // made at the first use, kept afterwards
  auto runner = std::make_shared<std::unique_ptr<Runner>>();
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 if (!*runner) {
                                   *runner = make(ShapeOf(shape, nodes));
                                   (*runner)->Run();
                                 }
                                 for (auto _ : state) (*runner)->Run();
                                 const int count = ShapeOf(shape, nodes).nodes;
                                 state.counters["node"] = benchmark::Counter(
                                     static_cast<double>(state.iterations()) * count,
                                     benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
                                 state.SetLabel((*runner)->Label());
                               })
      ->UseRealTime()
      ->MinTime(0.01);
}

template <int64_t kNs>
void Busy() {
  Spin(kNs);
}

template <int64_t kNs>
void RegisterBusy(const std::string& name, int nodes) {
  for (const char* shape : {"independent", "grid", "random"}) {
    Register("Serial" + name, shape, nodes, 1,
             [](const Shape& s) { return std::make_unique<SerialLoop>(s, &Busy<kNs>); });
    Register("Ours" + name, shape, nodes, 2, [](const Shape& s) {
      return std::make_unique<Ours>(s, 2, opkit::ReplayMode::kAuto, &Busy<kNs>);
    });
    Register("Tbb" + name, shape, nodes, 2,
             [](const Shape& s) { return std::make_unique<TbbFlow>(s, 2, &Busy<kNs>); });
  }
}

// Measures adding tasks and edges, freezing, and destruction. `bytes` is the memory that a build
// has allocated at its end.
void RegisterBuild(const std::string& shape_name, int nodes) {
  const auto report = [](benchmark::State& state, int count, double bytes) {
    state.counters["node"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * count,
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["bytes"] = bytes / count;
  };
  const auto allocated = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const std::string tail = "/" + shape_name + "/" + std::to_string(nodes) + "/1";
  benchmark::RegisterBenchmark(("BuildOurs" + tail).c_str(),
                               [=](benchmark::State& state) {
                                 const Shape& shape = ShapeOf(shape_name, nodes);
                                 opkit::ThreadPool& pool = opkit::ThreadPool::Global();
                                 double bytes = 0;
                                 for (auto _ : state) {
                                   const double before = allocated();
                                   opkit::TaskGraph graph = Build(shape, &Empty);
                                   opkit::FrozenTaskGraph frozen = graph.Freeze({.pool = &pool});
                                   bytes = allocated() - before;
                                 }
                                 report(state, shape.nodes, bytes);
                               })
      ->UseRealTime()
      ->MinTime(0.01);
  benchmark::RegisterBenchmark(("BuildTbb" + tail).c_str(),
                               [=](benchmark::State& state) {
                                 const Shape& shape = ShapeOf(shape_name, nodes);
                                 double bytes = 0;
                                 for (auto _ : state) {
                                   const double before = allocated();
                                   TbbFlow flow(shape, 1, &Empty);
                                   bytes = allocated() - before;
                                 }
                                 report(state, shape.nodes, bytes);
                               })
      ->UseRealTime()
      ->MinTime(0.01);
}

void RegisterAll() {
  using opkit::ReplayMode;
  for (const char* shape : {"chain", "independent", "grid", "random"}) {
    for (const int nodes : {1'000, 10'000, 100'000, 1'000'000}) {
      Register("Serial", shape, nodes, 1,
               [](const Shape& s) { return std::make_unique<SerialLoop>(s, &Empty); });
      for (const int threads : {1, 2}) {
        Register("Ours", shape, nodes, threads, [=](const Shape& s) {
          return std::make_unique<Ours>(s, threads, ReplayMode::kAuto, &Empty);
        });
        if (nodes > 100'000) continue;
        Register("Tbb", shape, nodes, threads,
                 [=](const Shape& s) { return std::make_unique<TbbFlow>(s, threads, &Empty); });
#ifdef HAS_EIGEN
        Register("Eigen", shape, nodes, threads, [=](const Shape& s) {
          return std::make_unique<CountersOver<Eigen::ThreadPool, false>>(
              s, PoolOf<Eigen::ThreadPool>(threads), &Empty);
        });
        Register("EigenInline", shape, nodes, threads, [=](const Shape& s) {
          return std::make_unique<CountersOver<Eigen::ThreadPool, true>>(
              s, PoolOf<Eigen::ThreadPool>(threads), &Empty);
        });
#endif
        if (nodes > 10'000) continue;
        Register("Mutex", shape, nodes, threads, [=](const Shape& s) {
          return std::make_unique<CountersOver<MutexPool, false>>(s, PoolOf<MutexPool>(threads),
                                                                  &Empty);
        });
      }
      if (nodes <= 100'000) {
        Register("OursCounters", shape, nodes, 1, [](const Shape& s) {
          return std::make_unique<Ours>(s, 1, ReplayMode::kCounters, &Empty);
        });
      }
    }
    for (const int nodes : {1'000, 100'000, 1'000'000}) RegisterBuild(shape, nodes);
  }
  RegisterBusy<150>("150ns", 10'000);
  RegisterBusy<1'000>("1us", 4'096);
  RegisterBusy<5'000>("5us", 1'024);
  RegisterBusy<50'000>("50us", 256);
}

}  // namespace

// Interleaves the repetitions, so that a disturbance of the machine meets all contenders. With
// --walk SHAPE NODES RUNS it only walks one graph, to count instructions.
int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--walk") == 0) {
    Ours ours(MakeShape(argv[2], std::atoi(argv[3])), 1, opkit::ReplayMode::kWalk, &Empty);
    for (int i = 0; i < std::atoi(argv[4]); ++i) ours.Run();
    return 0;
  }
  std::vector<char*> arguments(argv, argv + argc);
  std::string interleaved = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleaved.data());
  argc = static_cast<int>(arguments.size());
  RegisterAll();
  benchmark::Initialize(&argc, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argc, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
