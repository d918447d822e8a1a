// The cost of selection in Compile: choosing the kernels of a thousand nodes, of two backends each;
// the same with converters between two layouts at every second edge; and explaining the choice. The
// goal is 5 ms for a thousand nodes.
#include <benchmark/benchmark.h>

#include <cstring>

#include "opkit/core/layout_registry.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/plan/plan_state.hpp"

namespace {

using namespace opkit;

void CopyBytes(const Tensor& from, Tensor& to) {
  std::memcpy(to.raw_mutable_data(), from.raw_data(), static_cast<size_t>(from.nbytes()));
}
LayoutId Other() {
  static const LayoutId id =
      RegisterLayout({.name = "other", .to_standard = &CopyBytes, .from_standard = &CopyBytes});
  return id;
}

class PlainOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
class FastOp final : public PlainOp {
 public:
  using PlainOp::PlainOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    config.inplace = {{0, 0}};
    if (query.def.args().Get<bool>("other", false))
      config.input_layouts = config.output_layouts = {{Other(), {}}};
    return {config};
  }
};
OPERATOR_SCHEMA(Selected)
    .NumInputs(1)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .IdenticalTypeAndShape()
    .Arg<bool>("other", "runs in the other layout", false);
REGISTER_CPU_OPERATOR(Selected, PlainOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Selected, fast, FastOp);
OPKIT_REGISTER_BACKEND_RANK("fast", 10);

constexpr int kNodes = 1000;
Graph Chain(bool layouts) {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {64});
  for (int i = 0; i < kNodes; ++i)
    graph.AddNode(OperatorDef("Selected", {StrCat("v", i)}, {StrCat("v", i + 1)})
                      .Arg("other", layouts && i % 2 == 1));
  graph.AddOutput(StrCat("v", kNodes));
  return graph;
}

void Select(benchmark::State& state, bool layouts) {
  const Graph graph = Chain(layouts);
  const GraphView view(graph);
  const GraphTypes inferred = InferGraph(view);
  detail::ConvertedConstants constants;
  size_t nodes = 0;
  for (auto _ : state) {
    GraphTypes types = inferred;
    detail::IndexedVector<NodeChoice> choices;
    detail::KernelSelector(view, types, {}).SelectAll(choices);
    if (detail::NeedsConverters(view, types, choices, nullptr))
      benchmark::DoNotOptimize(
          detail::ConvertedGraph::Make(view, types, choices, constants, nullptr));
    nodes = choices.size();
  }
  state.counters["nodes"] = static_cast<double>(nodes);
}
void SelectThousand(benchmark::State& state) { Select(state, false); }
BENCHMARK(SelectThousand)->Unit(benchmark::kMillisecond);
void SelectThousandAndConvert(benchmark::State& state) { Select(state, true); }
BENCHMARK(SelectThousandAndConvert)->Unit(benchmark::kMillisecond);
void CompileThousand(benchmark::State& state) {
  const Graph graph = Chain(false);
  for (auto _ : state) benchmark::DoNotOptimize(Compile(graph, {.threads = 1}));
}
BENCHMARK(CompileThousand)->Unit(benchmark::kMillisecond);
void ExplainThousand(benchmark::State& state) {
  const Plan plan = Compile(Chain(true), {.threads = 1});
  for (auto _ : state) benchmark::DoNotOptimize(ToString(plan.Explain()));
}
BENCHMARK(ExplainThousand)->Unit(benchmark::kMillisecond);

}  // namespace
