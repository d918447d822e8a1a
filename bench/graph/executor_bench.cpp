// Graphs of empty operators through Executor::Run, against the frozen task graph of plain functions
// on the same graph, a loop of plain virtual calls in the stored order, and SimpleNet. Names are
// Contender/shape/nodes/threads; times are of one node.
#include <benchmark/benchmark.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "opkit/engine/task_graph.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/simple_net.hpp"

namespace {

using namespace opkit;

class EmptyOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    asm volatile("");
    return true;
  }
};
OPERATOR_SCHEMA(Empty).NumInputs(1, 3).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Empty, EmptyOp);

// Edges (before, after).
std::vector<std::pair<int, int>> Edges(const std::string& shape, int n) {
  std::vector<std::pair<int, int>> edges;
  if (shape == "chain") {
    for (int i = 1; i < n; ++i) edges.emplace_back(i - 1, i);
  } else if (shape == "grid") {
    const int side = static_cast<int>(std::lround(std::sqrt(n)));
    for (int i = 0; i < side * side && i < n; ++i) {
      if (i >= side) edges.emplace_back(i - side, i);
      if (i % side > 0) edges.emplace_back(i - 1, i);
    }
  } else if (shape == "random") {
    std::mt19937 random(1);
    for (int i = 1; i < n; ++i)
      for (int k = 0; k < 2; ++k)
        edges.emplace_back(static_cast<int>(random() % static_cast<unsigned>(i)), i);
  }
  return edges;
}

Graph OfOperators(const std::string& shape, int n) {
  std::vector<OperatorDef> defs(static_cast<size_t>(n), OperatorDef("Empty"));
  for (auto [from, to] : Edges(shape, n)) {
    OperatorDef& def = defs[static_cast<size_t>(to)];
    const std::string name = StrCat("v", from);
    if (def.inputs().empty() || def.inputs()[0] != name) def.Input(name);
  }
  Graph g;
  g.AddInput("x", DType::kFloat32, {1});
  for (int i = 0; i < n; ++i) {
    OperatorDef& def = defs[static_cast<size_t>(i)];
    if (def.inputs().empty()) def.Input("x");
    g.AddNode(std::move(def.Output(StrCat("v", i))));
  }
  return g;
}

struct Contender {
  virtual ~Contender() = default;
  virtual void Run() = 0;
};

struct OurExecutor : Contender {
  OurExecutor(const std::string& shape, int n, int threads)
      : exec(Compile(OfOperators(shape, n), {.threads = threads})) {
    exec.Bind("x", Tensor::Scalar(1.f).View({1}));
  }
  void Run() override { exec.Run(); }
  Executor exec;
};

struct OurTasks : Contender {
  OurTasks(const std::string& shape, int n, int threads) {
    TaskGraph graph;
    std::vector<TaskId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(graph.Add([] { asm volatile(""); }));
    for (auto [from, to] : Edges(shape, n))
      graph.Precede(ids[static_cast<size_t>(from)], ids[static_cast<size_t>(to)]);
    frozen.emplace(graph.Freeze({.threads = threads}));
  }
  void Run() override { frozen->Run(); }
  std::optional<FrozenTaskGraph> frozen;
};

struct Net : Contender {
  Net(const std::string& shape, int n, int) {
    *ws.CreateTensor("x") = Tensor::Scalar(1.f).View({1});
    net.emplace(OfOperators(shape, n), &ws);
  }
  void Run() override { net->Run(); }
  Workspace ws;
  std::optional<SimpleNet> net;
};

struct Virtual {
  virtual ~Virtual() = default;
  virtual void Call() = 0;
};
struct EmptyVirtual final : Virtual {
  void Call() override { asm volatile(""); }
};
struct VirtualCalls : Contender {
  VirtualCalls(const std::string&, int n, int) {
    for (int i = 0; i < n; ++i) nodes.push_back(std::make_unique<EmptyVirtual>());
  }
  void Run() override {
    for (auto& node : nodes) node->Call();
  }
  std::vector<std::unique_ptr<Virtual>> nodes;
};

template <class C>
void Register(const std::string& name, const std::string& shape, int nodes, int threads) {
  benchmark::RegisterBenchmark(StrCat(name, "/", shape, "/", nodes, "/", threads).c_str(),
                               [=](benchmark::State& state) {
                                 C contender(shape, nodes, threads);
                                 // so that replay modes settle
                                 for (int i = 0; i < 20; ++i) contender.Run();
                                 int64_t runs = 0;
                                 for (auto _ : state) {
                                   contender.Run();
                                   ++runs;
                                 }
                                 state.counters["ns_per_node"] = benchmark::Counter(
                                     static_cast<double>(runs) * nodes * 1e-9,
                                     benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
                               })
      ->UseRealTime();
}

const bool registered = [] {
  for (const std::string shape : {"chain", "independent", "grid", "random"})
    for (const int nodes : {1'024, 10'000, 90'000}) {
      Register<VirtualCalls>("VirtualCalls", shape, nodes, 1);
      for (const int threads : {1, 2}) {
        Register<OurTasks>("TaskGraph", shape, nodes, threads);
        Register<OurExecutor>("Executor", shape, nodes, threads);
      }
      if (nodes <= 10'000) Register<Net>("SimpleNet", shape, nodes, 1);
    }
  return true;
}();

}  // namespace
