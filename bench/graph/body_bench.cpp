// The cost of a body over the flat graph: runs of a graph whose nodes are in the body of one node
// Subgraph, or in a body each, beside runs of the same nodes without a body. The goals are 50 ns
// for a call, 1 ns for a node, and arenas within 2 % of the flat graph's. Every operator only adds
// 1 to one element, so that the cost of reaching it is measured. The two sides of a pair take
// turns; `ns_a_call` and `ns_a_node` are the differences of the medians.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/ops/subgraph.hpp"

namespace {

using namespace opkit;

class AddOneOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    *y->mutable_data<float>() = *x.data<float>() + 1;
    return true;
  }
};
OPERATOR_SCHEMA(AddOne).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(AddOne, AddOneOp);

const PassList kNoPasses;

OperatorDef AddOne(int i) { return OperatorDef("AddOne", {StrCat("v", i)}, {StrCat("v", i + 1)}); }
// Makes `bodies` bodies of `nodes` operators each; the flat graph if `nested` is false.
Graph Chain(int bodies, int nodes, bool nested) {
  Graph g;
  g.AddInput("v0", DType::kFloat32, {1});
  for (int b = 0; b < bodies; ++b) {
    Graph body;
    body.AddInput(StrCat("v", b * nodes), DType::kFloat32, {1});
    for (int i = b * nodes; i < (b + 1) * nodes; ++i) (nested ? body : g).AddNode(AddOne(i));
    if (!nested) continue;
    const std::string in = StrCat("v", b * nodes), out = StrCat("v", (b + 1) * nodes);
    body.AddOutput(out);
    g.AddNode(OperatorDef("Subgraph", {in}, {out}).Subgraph("body", MakeSubgraph(body)));
  }
  g.AddOutput(StrCat("v", bodies * nodes));
  return g;
}

class Runner {
 public:
  explicit Runner(const Graph& graph)
      : exec_(Compile(graph, {.threads = 1, .passes = &kNoPasses})) {
    exec_.Bind("v0", Tensor({1}, DType::kFloat32));
    exec_.Bind(graph.outputs()[0], Tensor({1}, DType::kFloat32));
    for (int run = 0; run < 100; ++run) exec_.Run();
  }
  double NsOfRun(int runs) {
    const auto begin = std::chrono::steady_clock::now();
    for (int run = 0; run < runs; ++run) exec_.Run();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    return time.count() / runs;
  }
  double arena_bytes() const { return static_cast<double>(exec_.plan().memory().arena_bytes); }

 private:
  Executor exec_;
};
double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Arguments: the number of bodies, and of nodes in each.
void BodyOverFlat(benchmark::State& state) {
  const int bodies = static_cast<int>(state.range(0)), nodes = static_cast<int>(state.range(1));
  Runner flat(Chain(bodies, nodes, false)), nested(Chain(bodies, nodes, true));
  const int runs = (std::max)(1, 20'000 / (bodies * nodes));
  std::vector<double> flat_ns, nested_ns;
  for (auto _ : state) {
    flat_ns.push_back(flat.NsOfRun(runs));
    nested_ns.push_back(nested.NsOfRun(runs));
  }
  const double over = Median(nested_ns) - Median(flat_ns);
  state.counters["flat_ns"] = Median(flat_ns);
  state.counters["ns_a_call"] = over / bodies;
  state.counters["ns_a_node"] = over / (bodies * nodes);
  state.counters["arena_ratio"] = nested.arena_bytes() / (std::max)(1., flat.arena_bytes());
}
BENCHMARK(BodyOverFlat)
    ->Args({1, 1})
    ->Args({1, 10})
    ->Args({1, 1000})
    ->Args({100, 1})
    ->Args({100, 10});

}  // namespace
