// Pipeline: the stages are balanced and give the results of one process.
#include "opkit/cluster/pipeline.hpp"

#include <doctest/doctest.h>

#include "cluster/local_runs.hpp"
#include "models/expected.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/ops/all.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/check_fails.hpp"
#include "support/sanitizers.hpp"

namespace pipeline_test { namespace {

using namespace opkit;

std::vector<int> ProcessesOf(const Graph& graph) {
  std::vector<int> processes;
  for (const OperatorDef& def : graph.nodes()) processes.push_back(def.process());
  return processes;
}
// Products of a matrix with itself, each with the cost of the others.
Graph Chain(int nodes) {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {64, 64}).AddInput("w", DType::kFloat32, {64, 64});
  for (int i = 0; i < nodes; ++i)
    graph.AddNode(OperatorDef("MatMul", {StrCat("v", i), "w"}, {StrCat("v", i + 1)}));
  graph.AddOutput(StrCat("v", nodes));
  return graph;
}

TEST_CASE("the stages of a chain have equal costs") {
  const PipelineCut cut = Pipeline(Chain(12), 3);
  CHECK(ProcessesOf(cut.graph) == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
  REQUIRE(cut.stages.size() == 3);
  for (const PipelineStage& stage : cut.stages) {
    CHECK(stage.nodes == 4);
    CHECK(stage.ns == doctest::Approx(4 * (200 + 2 * 64 * 64 * 64 / 20.0)));
  }
  constexpr int64_t kBytes = 64 * 64 * 4;
  CHECK(cut.stages[0].bytes_received == 0);
  CHECK(cut.stages[0].bytes_sent == kBytes);
  CHECK(cut.stages[1].bytes_received == kBytes);
  CHECK(cut.stages[1].bytes_sent == kBytes);
  CHECK(cut.stages[1].messages_ns == doctest::Approx(2 * (5000 + kBytes / 5.0)));
  CHECK(cut.stages[2].bytes_sent == 0);
}

TEST_CASE("measured times come before the costs of schemas") {
  PipelineOptions options{.times = {{"v1", 9000}}, .message_ns = 1};
  for (int i = 2; i <= 6; ++i) options.times[StrCat("v", i)] = 3000;
  CHECK(ProcessesOf(Pipeline(Chain(6), 2, options).graph) == std::vector<int>{0, 0, 1, 1, 1, 1});

  Executor exec(Compile(Chain(3)));
  exec.Bind("v0", RandomTensor({64, 64}, DType::kFloat32, 1));
  exec.Bind("w", RandomTensor({64, 64}, DType::kFloat32, 2));
  Profiler::Start();
  exec.Run();
  Profiler::Stop();
  const auto times = TimesOfNodes(exec.plan(), ProfileOfRun(exec.plan(), Profiler::Read()));
  REQUIRE(times.size() == 3);
  for (const char* name : {"v1", "v2", "v3"}) CHECK(times.at(name) > 0);
}

TEST_CASE("a cut is where little crosses") {
  // The third value is small, and the others are large.
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1000, 1000});
  graph.AddNode(OperatorDef("Exp", {"x"}, {"a"}));
  graph.AddNode(OperatorDef("Neg", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("ReduceMax", {"b"}, {"small"}));
  graph.AddNode(OperatorDef("Mul", {"x", "small"}, {"c"}));
  graph.AddNode(OperatorDef("Neg", {"c"}, {"d"}));
  graph.AddOutput("d");
  const PipelineCut cut = Pipeline(graph, 2);
  CHECK(ProcessesOf(cut.graph) == std::vector<int>{0, 0, 0, 1, 1});
  CHECK(cut.stages[0].bytes_sent == 4);
  CHECK(cut.warnings.empty());
  // A message that takes longer than the work: all of it stays on one process.
  const PipelineCut whole = Pipeline(graph, 2, {.message_ns = 1e12});
  CHECK(ProcessesOf(whole.graph) == std::vector<int>{0, 0, 0, 0, 0});
  CHECK(whole.stages[1].nodes == 0);
  CHECK(whole.warnings ==
        std::vector<std::string>{"the pipeline has 1 stage with nodes for 2 processes: more would "
                                 "make the slowest stage no shorter. Process 1 has nothing to do"});
  const PipelineCut many = Pipeline(graph, 9, {.message_ns = 0, .message_bytes_per_ns = 1e12});
  CHECK(many.warnings.size() == 1);
  CHECK(Contains(many.warnings[0], "5 stages with nodes for 9 processes"));
  CHECK(Contains(many.warnings[0], "Processes 5 to 8 have nothing to do"));
  // Each process computes what depends on no input.
  Graph constant;
  constant.AddConstant("c", Tensor::From<float>({1}, {1}));
  constant.AddNode(OperatorDef("Neg", {"c"}, {"y"}));
  constant.AddOutput("y");
  CHECK(Pipeline(constant, 3).warnings.empty());
}

TEST_CASE("what cannot cross stays together, and constants are computed everywhere") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {500});
  graph.AddConstant("w", RandomTensor({500}, DType::kFloat32, 1));
  graph.AddNode(OperatorDef("Neg", {"w"}, {"minus"}));
  graph.AddNode(OperatorDef("Exp", {"x"}, {"a"}).Name("first"));
  graph.AddNode(OperatorDef("Add", {"a", "minus"}, {"b"}));
  graph.AddNode(OperatorDef("SequenceConstruct", {"a", "b"}, {"s"}));
  graph.AddNode(OperatorDef("Exp", {"b"}, {"c"}));
  graph.AddNode(OperatorDef("ConcatFromSequence", {"s"}, {"d"}, {{"axis", 0}}));
  graph.AddNode(OperatorDef("Exp", {"d"}, {"e"}).Name("late"));
  graph.AddNode(OperatorDef("Exp", {"e"}, {"f"}).ControlInput("late"));
  graph.AddNode(OperatorDef("Exp", {"f"}, {"g"}));
  graph.AddOutput("g").AddOutput("c");
  for (int processes = 2; processes <= 8; ++processes) {
    const std::vector<int> at =
        ProcessesOf(Pipeline(graph, processes, {.node_ns = 1e6, .message_ns = 1}).graph);
    CHECK(at[0] == -1);
    CHECK(at[3] == at[4]);
    CHECK(at[4] == at[5]);
    CHECK(at[6] == at[7]);
    for (size_t node = 2; node < at.size(); ++node) CHECK(at[node] >= at[node - 1]);
    CHECK(at.back() ==
          std::min(processes, 3) - 1);  // the three in the middle are the slowest stage
  }
}

TEST_CASE("arguments that Pipeline refuses") {
  CheckFails([] { Pipeline(Chain(2), 0); }, "a pipeline of 0 processes, expected 1 or more");
  CheckFails([] { Pipeline(Chain(2), 2, {.flops_per_ns = 0}); },
             "a rate of PipelineOptions is 0, expected more than 0");
  CheckFails([] { Pipeline(Chain(2), 2, {.node_ns = -1}); }, "a time of PipelineOptions is -1 ns");
  Graph graph = Chain(2);
  graph.ReplaceNode(1, OperatorDef(graph.node(1)).Process(0));
  CheckFails(
      [&] { Pipeline(graph, 2); },
      "Pipeline chooses the process of each node, but the node MatMul (v1, w) -> (v2) names");
}

// Within rounding, because nodes of two stages are not fused.
TEST_CASE("models on several processes give the results of one") {
  struct Model {
    std::string path;
    std::vector<std::vector<NamedTensor>> inputs;
  };
  const std::vector<Model> models = {
#ifndef OPKIT_TESTS_THREAD_SANITIZER  // under which these models take a minute
      {"magika-1.0.3/magika/models/standard_v3_3/model.onnx",
       {FileBytes(1, std::string(4096, 'a')), FileBytes(2, std::string(4096, 'b'))}},
      {"rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
       {Picture(1, 48, 192)}},
#endif
      {"silero_vad-6.2.3/silero_vad/data/silero_vad_16k_op15.onnx", {Voices(1), Voices(3)}},
  };
  for (const Model& model : models) {
    CAPTURE(model.path);
    const Graph graph = LoadOnnx(DataFolder() + "/" + model.path);
    std::vector<NamedTensors> expected;
    Executor alone(Compile(graph));
    for (const auto& inputs : model.inputs) expected.push_back(alone.Run(inputs));
    for (const int processes : {2, 3}) {
      std::vector<Graph::Input> shapes;
      for (const NamedTensor& input : model.inputs[0])
        shapes.push_back({input.name, TensorInfo::Of(input.tensor)});
      const PipelineCut cut = Pipeline(graph, processes, {.inputs = shapes});
      CHECK(cut.stages.back().nodes > 0);
      LocalCluster cluster(processes);
      std::vector<size_t> compared(static_cast<size_t>(processes), 0);
      cluster.Run([&](const CommunicatorPtr& communicator) {
        Executor exec(Compile(cut.graph, With(communicator)));
        for (size_t run = 0; run < model.inputs.size(); ++run) {
          for (const auto& [name, tensor] : exec.Run(InputsOf(exec, model.inputs[run]))) {
            ++compared[static_cast<size_t>(communicator->process())];
            CHECK(Difference(tensor, expected[run].Get(name), kModelTolerance) == "");
          }
        }
      });
      size_t all = 0;
      for (const size_t count : compared) all += count;
      CHECK(all == model.inputs.size() * graph.outputs().size());
    }
  }
}

}  // namespace
}  // namespace pipeline_test
