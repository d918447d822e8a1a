#include "opkit/graph/plan/recomputed_graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "../random_graph.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/subgraph.hpp"
#include "opkit/ops/transpose.hpp"
#include "steps_of.hpp"
#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/sanitizers.hpp"

namespace recomputed_graph_test {
namespace {

using namespace opkit;

// `layers` layers, every fourth a product by W, and a pass back that reads what each has made, the
// last layer first. Values are matrices of `size` by `size`.
Graph Training(int layers, int64_t size) {
  Graph graph;
  graph.AddInput("a0", DType::kFloat32, {size, size});
  graph.AddConstant("W", RandomTensor({size, size}, DType::kFloat32, 7));
  const auto name = [](const char* of, int i) { return StrCat(of, i); };
  for (int i = 1; i <= layers; ++i) {
    OperatorDef def = i % 4 == 0 ? OperatorDef("MatMul", {name("a", i - 1), "W"}, {name("a", i)})
                                 : OperatorDef("Scale", {name("a", i - 1)}, {name("a", i)});
    if (i % 4 != 0) def.Arg("scale", i % 2 == 0 ? 0.5f : -0.75f);
    graph.AddNode(std::move(def));
  }
  std::string gradient = name("a", layers);
  for (int i = layers; i-- > 1;) {
    graph.AddNode(OperatorDef("Add", {gradient, name("a", i)}, {name("s", i)}));
    graph.AddNode(OperatorDef("Scale", {name("s", i)}, {name("g", i)}).Arg("scale", 0.5f));
    gradient = name("g", i);
  }
  graph.AddOutput(gradient);
  return graph;
}

std::vector<Tensor> OutputsOf(const Plan& plan, const std::vector<Tensor>& inputs) {
  std::vector<NamedTensor> given;
  for (size_t i = 0; i < inputs.size(); ++i)
    given.push_back({plan.graph().inputs()[i].name, detail::CopyOf(inputs[i])});
  Executor executor(plan);
  executor.Run(given);
  const NamedTensors found = executor.Run(given);  // a second run finds what the first has left
  std::vector<Tensor> outputs;
  for (const std::string& output : plan.graph().outputs())
    outputs.push_back(detail::CopyOf(found.Get(output)));
  return outputs;
}
// V is made of X, and read at once and at last; P and Q are live together between.
Graph ReadLate(const OperatorDef& def) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {64});
  graph.AddNode(def);
  graph.AddNode(OperatorDef("InLayouts", {"V"}, {"A"}));
  graph.AddNode(OperatorDef("InLayouts", {"A"}, {"P"}));
  graph.AddNode(OperatorDef("InLayouts", {"P"}, {"Q"}));
  graph.AddNode(OperatorDef("InLayouts", {"Q", "V"}, {"Y"}));
  graph.AddOutput("Y");
  return graph;
}
int Count(const Graph& graph, const char* type) {
  int count = 0;
  for (const OperatorDef& def : graph.nodes()) count += def.type() == type;
  return count;
}

class CopyOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(RandomCopy).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
OPKIT_OPERATOR_SCHEMA(StatefulCopy).NumInputs(1).NumOutputs(1).KeepsState().IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(RandomCopy, CopyOp);
OPKIT_REGISTER_CPU_OPERATOR(StatefulCopy, CopyOp);

}  // namespace

TEST_CASE("the steps of a plan count the bytes that it takes") {
  const Plan plan = Compile(Training(16, 8), {.threads = 1});
  const detail::RecomputedGraph steps(*plan.state()->GetLatest(), Device{});
  CHECK(Recompute(steps.problem(), 1 << 30).given_bytes == plan.memory().arena_bytes);
  CHECK(steps.problem().steps.size() == static_cast<size_t>(plan.graph().num_nodes()));
}

TEST_CASE("a training graph that does not fit half its memory fits it, on any number of threads") {
  const Graph graph = Training(64, 8);
  const std::vector<Tensor> inputs = RandomInputs(graph, 3);
  const std::vector<Tensor> expected = RunInOrder(graph, inputs);
#ifdef OPKIT_TESTS_THREAD_SANITIZER  // the planner has one thread, and takes most of the time
  constexpr int kThreads[] = {8};
#else
  constexpr int kThreads[] = {1, 2, 8};
#endif
  for (const int threads : kThreads) {
    CAPTURE(threads);
    PlanOptions options{.threads = threads, .memory = {.verify = true}};
    const int64_t all = Compile(graph, options).memory().arena_bytes;
    for (const int percent : {75, 50, 25}) {
      CAPTURE(percent);
      options.memory.recompute = false;
      options.memory.capacity_bytes = all * percent / 100;
      CHECK(ErrorOf([&] { Compile(graph, options); }).code() == ErrorCode::kOutOfMemory);
      options.memory.recompute = true;
      const Plan plan = Compile(graph, options);
      CHECK(plan.memory().arena_bytes <= all * percent / 100);
      CHECK(plan.memory().recomputed_nodes == plan.graph().num_nodes() - graph.num_nodes());
      // A value of 64 must go for each 64th of the memory, and each runs again once.
      CHECK(plan.memory().recomputed_nodes <= 64 * (100 - percent) / 100 + 8);
      CHECK(plan.memory().recomputed_share > 0);
      const std::vector<Tensor> found = OutputsOf(plan, inputs);
      CHECK(detail::SameBytes(found[0], expected[0]));
    }
  }
}

TEST_CASE("a value that has nothing but a bound keeps no graph from fitting") {
  Graph graph = Training(16, 8);
  PlanOptions options{.threads = 1};
  options.memory.capacity_bytes = Compile(graph, options).memory().arena_bytes * 3 / 4;
  graph.AddInput("large", DType::kFloat32, {64, 64});
  graph.AddNode(OperatorDef("NonZero", {"large"}, {"places"}));
  graph.AddNode(OperatorDef("Transpose", {"places"}, {"turned"}));
  graph.AddOutput("turned");
  options.memory.recompute = true;
  const Plan plan = Compile(graph, options);
  CHECK(plan.memory().recomputed_nodes > 0);
  CHECK(plan.memory().bounded_values == 0);
  options.memory.capacity_bytes = 1 << 20;
  CHECK(Compile(graph, options).memory().recomputed_nodes == 0);
  CHECK(Compile(graph, options).memory().bounded_values == 1);
  options.selection.forced.nodes = {{"nothere#again", "reference"}};
  CHECK_THROWS_AS(Compile(graph, options), Error);
}

TEST_CASE("cheap nodes run again, and the plan lists them") {
  const Graph graph = Training(16, 16);
  PlanOptions options{.threads = 1, .memory = {.verify = true}};
  const int64_t all = Compile(graph, options).memory().arena_bytes;
  options.memory.capacity_bytes = all * 3 / 4;
  options.memory.recompute = true;
  const Plan plan = Compile(graph, options);
  CHECK(Count(plan.graph(), "MatMul") == Count(graph, "MatMul"));
  CHECK(Count(plan.graph(), "Scale") > Count(graph, "Scale"));
  const int again = plan.memory().recomputed_nodes;
  CHECK(plan.Explain().recomputed_nodes == again);
  CHECK(Contains(ToString(plan.Explain()), StrCat("; ", again, " nodes computed again")));
  CHECK(Contains(ToString(plan), StrCat(", ", again, " nodes computed again for ")));
  CHECK(Contains(ToDot(plan), "#again"));
  CHECK(plan.graph().HasValue("a1#again"));
}

TEST_CASE("random graphs fit or are refused, and compute the same") {
  int fitted = 0, again = 0;
  for (uint64_t seed = 1; seed <= Rounds(60u); ++seed) {
    CAPTURE(seed);
    const RandomGraphOptions shape{.nodes = 40,
                                   .size = 8,
                                   .window = seed % 3 == 0 ? 12 : 0,
                                   .rewrites = seed % 2 == 0,
                                   .controls = seed % 5 == 0};
    const Graph graph = RandomGraph(seed, shape);
    const std::vector<Tensor> inputs = RandomInputs(graph, seed);
    const std::vector<Tensor> expected = RunInOrder(graph, inputs);
    PlanOptions options{.threads = 1 + static_cast<int>(seed % 2), .memory = {.verify = true}};
    options.schedule.deterministic = seed % 7 == 0;
    options.memory.reorder_nodes = seed % 4 == 1;
    const Plan given = Compile(graph, options);
    const int64_t all = given.memory().arena_bytes;
    options.memory.recompute = true;
    for (const int percent : {90, 75, 60}) {
      CAPTURE(percent);
      options.memory.capacity_bytes = (std::max)(all * percent / 100, int64_t{1});
      try {
        const Plan plan = Compile(graph, options);
        REQUIRE(plan.memory().arena_bytes <= options.memory.capacity_bytes);
        REQUIRE(Count(plan.graph(), "Accumulate") == Count(given.graph(), "Accumulate"));
        const std::vector<Tensor> found = OutputsOf(plan, inputs);
        for (size_t o = 0; o < found.size(); ++o) REQUIRE(detail::SameBytes(found[o], expected[o]));
        ++fitted;
        again += plan.memory().recomputed_nodes;
      } catch (const Error& error) {
        REQUIRE_MESSAGE(error.code() == ErrorCode::kOutOfMemory, error.what());
      }
    }
  }
  CHECK(fitted > Rounds(20));
  CHECK(again > Rounds(40));
}

TEST_CASE("plans with converters are lowered until they fit themselves, not only their steps") {
  // Each layer reads the one before it in another layout than the pass back does.
  Graph graph;
  graph.AddInput("a0", DType::kFloat32, {64});
  for (int i = 1; i <= 32; ++i)
    graph.AddNode(OperatorDef("InLayouts", {StrCat("a", i - 1)}, {StrCat("a", i)}).Arg("a", "A"));
  std::string gradient = "a32";
  for (int i = 32; i-- > 1;) {
    graph.AddNode(OperatorDef("Add", {gradient, StrCat("a", i)}, {StrCat("g", i)}));
    gradient = StrCat("g", i);
  }
  graph.AddOutput(gradient);
  PlanOptions options{.threads = 1, .memory = {.verify = true}};
  const Plan given = Compile(graph, options);
  const std::vector<Tensor> inputs{RandomTensor({64}, DType::kFloat32, 3)};
  const std::vector<Tensor> expected = OutputsOf(given, inputs);
  options.memory.recompute = true;
  for (const int percent : {90, 75, 50, 35}) {
    CAPTURE(percent);
    options.memory.capacity_bytes = given.memory().arena_bytes * percent / 100;
    const Plan plan = Compile(graph, options);
    CHECK(plan.memory().arena_bytes <= options.memory.capacity_bytes);
    CHECK(detail::SameBytes(OutputsOf(plan, inputs)[0], expected[0]));
  }
}

TEST_CASE("nodes that one kernel computes run again as one, and wait as one") {
  // V is two nodes that the backend "fusing" takes together.
  Graph graph = ReadLate(OperatorDef("Tripling", {"X"}, {"T"}));
  graph.InsertNode(1, OperatorDef("Tripling", {"T"}, {"V"}));
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    PlanOptions options{.threads = threads, .memory = {.verify = true}};
    options.memory.capacity_bytes = 512;
    options.memory.recompute = true;
    const Plan plan = Compile(graph, options);
    CHECK(StepsOf(plan) == std::vector<std::string>{"V", "A", "P", "Q", "V#again", "Y"});
    CHECK(plan.memory().recomputed_nodes == 2);
    const OperatorDef& first = plan.graph().node(plan.graph().Producer("T#again"));
    CHECK(first.control_inputs().size() == (threads == 1 ? 0 : 1));
    const std::vector<Tensor> inputs{RandomTensor({64}, DType::kFloat32, 3)};
    CHECK(detail::SameBytes(OutputsOf(plan, inputs)[0],
                            OutputsOf(Compile(graph, {.threads = 1}), inputs)[0]));
  }
}

TEST_CASE("recomputation requires a capacity and known shapes") {
  PlanOptions options;
  options.memory.recompute = true;
  CheckFails([&] { Compile(Training(4, 8), options); },
             "PlanOptions::memory.recompute needs capacity_bytes");
  options.memory.capacity_bytes = 1 << 20;
  Graph open;
  open.AddInput("X", DType::kFloat32, {Sym("N")});
  open.AddNode(OperatorDef("Relu", {"X"}, {"Y"}));
  open.AddOutput("Y");
  CheckFails([&] { Compile(open, options); },
             "PlanOptions::memory.recompute needs the dtype and the shape of every input, since "
             "another shape may need other nodes to run again; input 'X' is float32[N]");
}

TEST_CASE("a graph that cannot fit is refused as it is without recomputation, or nearer") {
  // Nothing but what is live together.
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {1000});
  graph.AddNode(OperatorDef("InLayouts", {"X"}, {"P"}));
  graph.AddNode(OperatorDef("InLayouts", {"P"}, {"Q"}));
  graph.AddNode(OperatorDef("InLayouts", {"Q"}, {"Y"}));
  graph.AddOutput("Y");
  PlanOptions options{.threads = 1};
  options.memory.capacity_bytes = 8063;
  const Error without = ErrorOf([&] { Compile(graph, options); });
  options.memory.recompute = true;
  const Error with = ErrorOf([&] { Compile(graph, options); });
  CHECK(with.code() == ErrorCode::kOutOfMemory);
  CHECK(std::string(with.what()) == without.what());
  options.memory.capacity_bytes = -1;
  CheckFails([&] { Compile(graph, options); }, "capacity_bytes is -1");

  options.memory.capacity_bytes = 3 * 256 + 64;
  const Error near = ErrorOf([&] { Compile(Training(64, 8), options); });
  CHECK(near.code() == ErrorCode::kOutOfMemory);
  CHECK(Contains(near.what(), "more than the capacity of 832; live together:"));
  CHECK(Contains(near.what(), " nodes computed again, the fewest bytes found"));
}

TEST_CASE("nodes that are random, keep state, write what they read or run a graph run once") {
  PlanOptions options{.threads = 1, .memory = {.verify = true}};
  options.memory.capacity_bytes = 512;
  options.memory.recompute = true;
  const Plan plan = Compile(ReadLate(OperatorDef("Scale", {"X"}, {"V"})), options);
  CHECK(plan.memory().arena_bytes == 512);
  CHECK(StepsOf(plan) == std::vector<std::string>{"V", "A", "P", "Q", "V#again", "Y"});
  CHECK(plan.memory().recomputed_nodes == 1);
  Graph body;
  body.AddInput("x", DType::kUndefined, {});
  body.AddNode(OperatorDef("Scale", {"x"}, {"y"}));
  body.AddOutput("y");
  for (const OperatorDef& def :
       {OperatorDef("RandomCopy", {"X"}, {"V"}), OperatorDef("StatefulCopy", {"X"}, {"V"}),
        OperatorDef("Subgraph", {"X"}, {"V"}).Subgraph("body", MakeSubgraph(body))}) {
    CAPTURE(def.type());
    options.memory.recompute = false;
    const Error without = ErrorOf([&] { Compile(ReadLate(def), options); });
    CHECK(without.code() == ErrorCode::kOutOfMemory);
    options.memory.recompute = true;
    CHECK(std::string(ErrorOf([&] { Compile(ReadLate(def), options); }).what()) == without.what());
  }
  Graph rewritten = ReadLate(OperatorDef("Scale", {"X"}, {"V"}));
  rewritten.InsertNode(2, OperatorDef("Accumulate", {"V", "X"}, {"V"}));
  CHECK(ErrorOf([&] { Compile(rewritten, options); }).code() == ErrorCode::kOutOfMemory);
  // Another node waits for this one by name.
  Graph waited = ReadLate(OperatorDef("Scale", {"X"}, {"V"}).Name("v"));
  waited.AddNode(OperatorDef("Scale", {"X"}, {"Z"}).ControlInput("v"));
  waited.AddOutput("Z");
  CHECK(ErrorOf([&] { Compile(waited, options); }).code() == ErrorCode::kOutOfMemory);
}

TEST_CASE("a node that runs again has the kernel that is forced on it, in another plan too") {
  PlanOptions options{.threads = 1};
  options.memory.capacity_bytes = 512;
  options.memory.recompute = true;
  options.selection.forced.nodes = {{"V", "reference"}};
  const Plan plan = Compile(ReadLate(OperatorDef("InLayouts", {"X"}, {"V"})), options);
  const Selection selection = plan.selection();
  REQUIRE(selection.Find("V#again"));
  CHECK(selection.Find("V#again")->backend == "reference");
  CHECK(selection.Find("P")->backend == "layouts");
  options.selection.forced = selection;
  const Plan same = Compile(ReadLate(OperatorDef("InLayouts", {"X"}, {"V"})), options);
  CHECK(ToString(same.selection()) == ToString(selection));
  options.memory.recompute = false;
  options.memory.capacity_bytes = 0;
  CheckFails([&] { Compile(ReadLate(OperatorDef("InLayouts", {"X"}, {"V"})), options); },
             "'V#again'");
}

TEST_CASE("values of a name that is taken already get another") {
  Graph graph = ReadLate(OperatorDef("Scale", {"X"}, {"V"}).Name("v"));
  graph.AddNode(OperatorDef("Relu", {"X"}, {"V#again"}).Name("v#again"));
  graph.AddOutput("V#again");
  PlanOptions options{.threads = 2, .memory = {.verify = true}};
  options.memory.capacity_bytes = 512;
  options.memory.recompute = true;
  const Plan plan = Compile(graph, options);
  CHECK(plan.graph().HasValue("V#again'"));
  const OperatorDef& again = plan.graph().node(plan.graph().Producer("V#again'"));
  CHECK(again.name() == "v#again'");
  // The node before its reader, which had no name, is waited for.
  CHECK(again.control_inputs() == std::vector<std::string>{"Q"});
  CHECK(plan.graph().node(plan.graph().Producer("Q")).name() == "Q");
}

}  // namespace recomputed_graph_test
