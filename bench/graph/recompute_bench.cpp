// The cost of fitting less memory by recomputation (PlanOptions::memory.recompute): Compile and a
// run of graphs at a share of their usual arena. Graphs: the training step of a transformer of one
// head, forward and back; a chain of equal layers forward and back, whose optimum is known; and the
// down and up of a U-Net, whose skipped values are read last. Counters: the nodes of the graph, the
// nodes that run again, their share of all work in percent by the estimates of schemas, and the
// arena as a share of the usual one. `fits` is 0 if the planner refuses the capacity. Names are
// Contender/graph/blocks/percent.
#include <benchmark/benchmark.h>

#include "opkit/graph.hpp"

namespace {

using namespace opkit;

Graph Transformer(int blocks) {
  constexpr int64_t kTokens = 128, kWidth = 128;
  Graph graph;
  graph.AddInput("x0", DType::kFloat32, {kTokens, kWidth});
  std::vector<std::string> weights;
  const auto weight = [&](const std::string& name) {
    graph.AddInput(name, DType::kFloat32, {kWidth, kWidth});
    weights.push_back(name);
    return name;
  };
  for (int b = 0; b < blocks; ++b) {
    const auto name = [&](const char* of) { return StrCat(of, b); };
    const auto add = [&](const char* op, std::vector<std::string> inputs, const char* output) {
      graph.AddNode(OperatorDef(op, std::move(inputs), {name(output)}));
    };
    add("MatMul", {name("x"), weight(name("Wq"))}, "q");
    add("MatMul", {name("x"), weight(name("Wk"))}, "k");
    add("MatMul", {name("x"), weight(name("Wv"))}, "v");
    add("Transpose", {name("k")}, "kt");
    add("MatMul", {name("q"), name("kt")}, "s");
    add("Softmax", {name("s")}, "p");
    add("MatMul", {name("p"), name("v")}, "c");
    add("MatMul", {name("c"), weight(name("Wo"))}, "o");
    add("Add", {name("x"), name("o")}, "y");
    add("MatMul", {name("y"), weight(name("W1"))}, "h");
    add("Tanh", {name("h")}, "t");
    add("MatMul", {name("t"), weight(name("W2"))}, "u");
    graph.AddNode(OperatorDef("Add", {name("y"), name("u")}, {StrCat("x", b + 1)}));
  }
  graph.AddNode(OperatorDef("ReduceMean", {StrCat("x", blocks)}, {"loss"}, {{"keepdims", 0}}));
  graph.AddOutput("loss");
  const GradientMap gradients = AddGradients(graph, "loss", weights);
  for (const std::string& name : weights) graph.AddOutput(gradients.at(name).dense);
  return graph;
}

Graph Layers(int layers) {
  Graph graph;
  graph.AddInput("a0", DType::kFloat32, {64, 64});
  for (int i = 0; i < layers; ++i)
    graph.AddNode(OperatorDef("Tanh", {StrCat("a", i)}, {StrCat("a", i + 1)}));
  std::string gradient = StrCat("a", layers);
  for (int i = layers; i-- > 1;) {
    graph.AddNode(OperatorDef("Mul", {gradient, StrCat("a", i)}, {StrCat("g", i)}));
    gradient = StrCat("g", i);
  }
  graph.AddOutput(gradient);
  return graph;
}

Graph UNet(int levels) {
  constexpr int64_t kChannels = 8;
  const int64_t size = int64_t{8} << levels;
  Graph graph;
  graph.AddInput("x0", DType::kFloat32, {1, kChannels, size, size});
  graph.AddConstant("scales", Tensor::From<float>({4}, {1, 1, 2, 2}));
  const auto convolve = [&](const std::string& from, const std::string& to, int64_t channels) {
    Tensor kernel({kChannels, channels, 3, 3}, DType::kFloat32);
    for (int64_t i = 0; i < kernel.numel(); ++i)
      kernel.mutable_data<float>()[i] = static_cast<float>(i % 7 - 3) * 0.01f;
    graph.AddConstant("W of " + to, kernel);
    graph.AddNode(OperatorDef("Conv", {from, "W of " + to}, {"sum of " + to})
                      .Arg("pads", std::vector<int64_t>{1, 1, 1, 1}));
    graph.AddNode(OperatorDef("Relu", {"sum of " + to}, {to}));
  };
  for (int l = 0; l < levels; ++l) {
    convolve(StrCat("x", l), StrCat("skip", l), kChannels);
    graph.AddNode(OperatorDef("MaxPool", {StrCat("skip", l)}, {StrCat("x", l + 1)})
                      .Arg("kernel_shape", std::vector<int64_t>{2, 2})
                      .Arg("strides", std::vector<int64_t>{2, 2}));
  }
  std::string up = StrCat("x", levels);
  for (int l = levels; l-- > 0;) {
    graph.AddNode(OperatorDef("Resize", {up, "", "scales"}, {StrCat("wide", l)}));
    graph.AddNode(OperatorDef("Concat", {StrCat("wide", l), StrCat("skip", l)}, {StrCat("both", l)})
                      .Arg("axis", 1));
    convolve(StrCat("both", l), up = StrCat("up", l), 2 * kChannels);
  }
  graph.AddOutput(up);
  return graph;
}

PlanOptions Options(const Graph& graph, int64_t percent) {
  PlanOptions options{.threads = 1};
  if (percent == 100) return options;
  options.memory.capacity_bytes = Compile(graph, options).memory().arena_bytes * percent / 100;
  options.memory.recompute = true;
  return options;
}
void Count(benchmark::State& state, const Graph& graph, const Plan& plan) {
  const MemorySummary memory = plan.memory();
  const int64_t without = Compile(graph, {.threads = 1}).memory().arena_bytes;
  state.counters["nodes"] = graph.num_nodes();
  state.counters["again"] = memory.recomputed_nodes;
  state.counters["work_percent"] = 100 * memory.recomputed_share;
  state.counters["arena"] = static_cast<double>(memory.arena_bytes) / static_cast<double>(without);
}

void TimeCompile(benchmark::State& state, const Graph& graph, int64_t percent) {
  const PlanOptions options = Options(graph, percent);
  bool fits = true;
  for (auto _ : state) {
    try {
      benchmark::DoNotOptimize(Compile(graph, options).threads());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      fits = false;
    }
  }
  state.counters["fits"] = fits;
  if (fits) Count(state, graph, Compile(graph, options));
}
void TimeRun(benchmark::State& state, const Graph& graph, int64_t percent) {
  std::vector<NamedTensor> inputs;
  for (const Graph::Input& input : graph.inputs()) {
    Tensor& tensor =
        inputs.emplace_back(input.name, Tensor(input.info.shape.ToShape(), DType::kFloat32)).tensor;
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.mutable_data<float>()[i] = static_cast<float>(i % 17 - 8) * 0.01f;
  }
  try {
    Executor executor(Compile(graph, Options(graph, percent)));
    executor.Run(inputs);
    for (auto _ : state) executor.Run(inputs);
    Count(state, graph, executor.plan());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    state.SkipWithError("the capacity is too small");
  }
}

const bool kRegistered = [] {
  const auto add = [](const std::string& name, const Graph& graph, bool runs) {
    for (const int64_t percent : {100, 75, 50, 35}) {
      benchmark::RegisterBenchmark(
          StrCat("Compile/", name, "/", percent).c_str(),
          [graph, percent](benchmark::State& state) { TimeCompile(state, graph, percent); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
      if (!runs) continue;
      benchmark::RegisterBenchmark(
          StrCat("Run/", name, "/", percent).c_str(),
          [graph, percent](benchmark::State& state) { TimeRun(state, graph, percent); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  };
  add("transformer/4", Transformer(4), true);
  add("transformer/24", Transformer(24), false);
  add("layers/64", Layers(64), true);
  add("layers/500", Layers(500), false);
  add("unet/5", UNet(5), true);
  return true;
}();

}  // namespace
