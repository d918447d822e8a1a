// Bodies that are planned with the graph around them: the same results, the memory of the flat
// graph, nothing allocated, their nodes in profiles, selections and explanations.
#include "opkit/graph/node_bodies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "nodes.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/subgraph.hpp"
#include "opkit/profile.hpp"
#include "opkit/profile/profiler.hpp"
#include "random_graph.hpp"
#include "support/allocations.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"
#include "support/text.hpp"

namespace node_bodies_test {
using namespace opkit;
using namespace graph_nodes;

namespace {

// The nodes at [first, end) of the graph's order as the body of one node "s", which stands in their
// place.
Graph WithBody(const Graph& graph, int first, int end) {
  const GraphView view(graph);
  const auto& order = view.order();
  std::set<std::string> inside, seen, returned(graph.outputs().begin(), graph.outputs().end());
  Graph body, out;
  OperatorDef node("Subgraph");
  node.Name("s");
  for (int i = first; i < end; ++i) {
    const OperatorDef& def = graph.node(order[static_cast<size_t>(i)]);
    for (const std::string& name : def.inputs())
      if (!inside.contains(name) && seen.insert(name).second) {
        body.AddInput(name, DType::kUndefined, {});
        node.Input(name);
      }
    for (const std::string& name : def.outputs())
      if (!seen.contains(name)) inside.insert(name);
    body.AddNode(def);
  }
  for (int i = end; i < graph.num_nodes(); ++i)
    for (const std::string& name : graph.node(order[static_cast<size_t>(i)]).inputs())
      returned.insert(name);
  for (const std::string& name : inside)
    if (returned.contains(name)) {
      body.AddOutput(name);
      node.Output(name);
    }
  node.Subgraph("body", MakeSubgraph(body));
  for (const Graph::Input& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape);
  for (const Graph::Constant& constant : graph.constants())
    out.AddConstant(constant.name, constant.value);
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (i == first) out.AddNode(node);
    if (i < first || i >= end) out.AddNode(graph.node(order[static_cast<size_t>(i)]));
  }
  for (const std::string& output : graph.outputs()) out.AddOutput(output);
  return out;
}
std::vector<Tensor> RunOf(Executor& exec, const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < inputs.size(); ++i) named.push_back({graph.inputs()[i].name, inputs[i]});
  std::vector<Tensor> outputs;
  for (const auto& [name, tensor] : exec.Run(named)) outputs.push_back(detail::CopyOf(tensor));
  return outputs;
}
const PassList kNoPasses;

Executor* g_cancelled = nullptr;
int g_counted = 0;
class CancelRunOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    if (g_cancelled) g_cancelled->Cancel();
    return true;
  }
};
class CountRunOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return ++g_counted != 3;
  }
};
OPERATOR_SCHEMA(CancelRun).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPERATOR_SCHEMA(CountRun).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(CancelRun, CancelRunOp);
REGISTER_CPU_OPERATOR(CountRun, CountRunOp);

// x -> Relu chain of `nodes` in a body -> y, with a node before and one after.
Graph Chain(int nodes, bool in_body) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {8, 8});
  for (int i = 0; i < nodes + 2; ++i)
    g.AddNode(Scale(StrCat(i == 0 ? "x" : "v", i == 0 ? "" : StrCat(i - 1)).c_str(),
                    StrCat("v", i).c_str(), 1.5));
  g.AddOutput(StrCat("v", nodes + 1));
  return in_body ? WithBody(g, 1, nodes + 1) : g;
}

}  // namespace

TEST_CASE("a body gives the bits of the flat graph, and takes its memory") {
  int64_t flat_bytes = 0, bytes = 0;
  for (uint64_t seed = 1; seed <= Rounds(60u); ++seed) {
    CAPTURE(seed);
    const Graph graph =
        RandomGraph(seed, {.nodes = 24, .window = seed % 2 ? 4 : 0, .rewrites = seed % 3 == 0});
    const int first = static_cast<int>(seed * 7 % 12),
              end = first + 2 + static_cast<int>(seed % 10);
    Graph nested = WithBody(graph, first, end);
    if (seed % 4 == 0) {  // a body in a body
      const OperatorDef def = nested.node(first);
      const Graph* body = SubgraphOf(def, "body");
      nested.ReplaceNode(first, OperatorDef(def).Subgraph(
                                    "body", MakeSubgraph(WithBody(*body, 0, body->num_nodes()))));
    }
    const auto inputs = RandomInputs(graph, seed);
    for (const int threads : {1, 2}) {
      CAPTURE(threads);
      PlanOptions options{
          .threads = threads, .schedule = {.deterministic = threads == 1}, .passes = &kNoPasses};
      options.memory.verify = true;
      const Plan flat_plan = Compile(graph, options), plan = Compile(nested, options);
      if (threads == 1) {
        flat_bytes += flat_plan.memory().arena_bytes;
        bytes += plan.memory().arena_bytes;
      }
      Executor flat(flat_plan), exec(plan), second(plan);
      for (int run = 0; run < 2; ++run) {
        std::vector<Tensor> copies[3];
        for (const Tensor& input : inputs)
          for (auto& copy : copies) copy.push_back(detail::CopyOf(input));
        const auto expected = RunOf(flat, graph, copies[0]);
        const auto found = RunOf(exec, nested, copies[1]);
        const auto again = RunOf(second, nested, copies[2]);
        for (size_t o = 0; o < expected.size(); ++o) {
          CHECK(detail::SameBytes(expected[o], found[o]));
          CHECK(detail::SameBytes(expected[o], again[o]));
        }
        for (size_t i = 0; i < inputs.size(); ++i)  // those that are rewritten
          CHECK(detail::SameBytes(copies[0][i], copies[1][i]));
      }
    }
  }
  CHECK(bytes <= flat_bytes * 102 / 100);
}

TEST_CASE("a run of bodies allocates nothing, and has one arena") {
  const int64_t live = GetAllocator(DeviceType::kCPU).live_bytes();
  Executor exec(Compile(Chain(10, true), {.threads = 1, .passes = &kNoPasses}));
  exec.Bind("x", Tensor({8, 8}, DType::kFloat32));
  exec.Bind("v11", Tensor({8, 8}, DType::kFloat32));
  WarmUp([&] { exec.Run(); });
  CHECK(AllocationsOf([&] { exec.Run(); }) == 0);
  Executor flat(Compile(Chain(10, false), {.threads = 1, .passes = &kNoPasses}));
  CHECK(exec.plan().memory().arena_bytes == flat.plan().memory().arena_bytes);
  CHECK(GetAllocator(DeviceType::kCPU).live_bytes() - live <=
        2 * flat.plan().memory().arena_bytes + 2 * 8 * 8 * 4 + 1024);
}

TEST_CASE("the bodies of an If share one region, and run again and again without allocations") {
  const auto branch = [](int nodes, int64_t size) {
    Graph g;
    g.AddInput("x", DType::kFloat32, {size});
    for (int i = 0; i < nodes; ++i)  // all live to the end
      g.AddNode(Scale("x", StrCat("t", i).c_str(), i + 1.));
    OperatorDef sum("Sum");
    for (int i = 0; i < nodes; ++i) sum.Input(StrCat("t", i));
    g.AddNode(sum.Output("y"));
    g.AddOutput("y");
    return g;
  };
  const auto around = [&](int then_nodes, int else_nodes) {
    Graph g;
    g.AddInput("c", DType::kBool, Shape{}).AddInput("x", DType::kFloat32, {64});
    g.AddNode(OperatorDef("If", {"c", "x"}, {"z"})
                  .Arg("captures", std::vector<std::string>{"x"})
                  .Subgraph("then_branch", MakeSubgraph(branch(then_nodes, 64)))
                  .Subgraph("else_branch", MakeSubgraph(branch(else_nodes, 64))));
    g.AddOutput("z");
    return g;
  };
  const auto bytes = [&](int then_nodes, int else_nodes) {
    return Compile(around(then_nodes, else_nodes), {.threads = 1, .passes = &kNoPasses})
        .memory()
        .arena_bytes;
  };
  CHECK(bytes(5, 2) == 5 * 256);
  CHECK(bytes(2, 5) == 5 * 256);
  CHECK(bytes(5, 5) == 5 * 256);
  Executor exec(Compile(around(5, 2), {.threads = 1}));
  Tensor condition(Shape{}, DType::kBool), z({64}, DType::kFloat32);
  exec.Bind("c", condition);
  exec.Bind("x", Tensor::From<float>({64}, std::vector<float>(64, 1)));
  exec.Bind("z", z);
  bool taken = false;
  const auto run = [&] {
    taken = !taken;
    *condition.mutable_data<bool>() = taken;
    exec.Run();
  };
  WarmUp(run);
  CHECK(AllocationsOf(run) == 0);
  run();
  CHECK(z.data<float>()[3] == (taken ? 15 : 3));
  run();
  CHECK(z.data<float>()[3] == (taken ? 15 : 3));
}

TEST_CASE("an output of a body is written where the caller has put it") {
  Graph g = WithBody(Chain(3, false), 1, 5);
  Executor exec(Compile(g, {.threads = 1, .passes = &kNoPasses}));
  Tensor y({8, 8}, DType::kFloat32);
  const void* data = y.raw_data();
  exec.Bind("v4", y);
  exec.Run({{"x", Tensor::From<float>({8, 8}, std::vector<float>(64, 1))}});
  CHECK(exec.output("v4").raw_data() == data);
  CHECK(y.data<float>()[0] == doctest::Approx(1.5 * 1.5 * 1.5 * 1.5 * 1.5));
}

TEST_CASE("nodes of a body are recorded inside the node that carries it") {
  Executor exec(Compile(Chain(3, true), {.threads = 1, .passes = &kNoPasses}));
  Profiler::Start();
  exec.Run({{"x", Tensor({8, 8}, DType::kFloat32)}});
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  uint64_t carrier = 0, run = 0;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == "Subgraph") carrier = span.id, run = span.parent;
  REQUIRE(carrier != 0);
  int inside = 0, outside = 0;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == "Scale") {
      inside += span.parent == carrier;
      outside += span.parent == run;
    }
  CHECK(inside == 3);
  CHECK(outside == 2);
  CHECK(ReportOfRun(exec.plan(), profile).nodes.size() == 3);
}

TEST_CASE("selections, explanations and descriptions show the nodes of bodies") {
  const Graph g = Chain(3, true);
  const Plan plan = Compile(g, {.threads = 1, .passes = &kNoPasses});
  const Selection selection = plan.selection();
  REQUIRE(selection.nodes.size() == 6);
  CHECK(selection.Find("v3/body/v2") != nullptr);
  CHECK(Compile(g, {.passes = &kNoPasses, .selection = {.forced = selection}})
            .selection()
            .nodes.size() == 6);
  Selection wrong = selection;
  for (Selection::Node& one : wrong.nodes)
    if (one.node == "v3/body/v2") one.backend = "no_such_backend";
  const std::string refused =
      ErrorOf([&] { Compile(g, {.passes = &kNoPasses, .selection = {.forced = wrong}}); }).what();
  CHECK(Contains(refused, "no_such_backend"));
  CHECK(Contains(refused, "in body of Subgraph 's'"));
  wrong.nodes.back().node = "v3/body/nothing";
  CHECK(Contains(
      ErrorOf([&] { Compile(g, {.passes = &kNoPasses, .selection = {.forced = wrong}}); }).what(),
      "'nothing', which the graph does not have"));

  CHECK(Contains(ToString(plan), "    0 Scale (v0) -> (v1)"));
  const Explanation explanation = plan.Explain();
  REQUIRE(explanation.nodes.size() == 3);
  REQUIRE(explanation.nodes[1].bodies.size() == 1);
  CHECK(explanation.nodes[1].bodies[0].nodes.size() == 3);
  CHECK(Contains(ToString(explanation), "\n  body:\n    0 Scale (v0) -> (v1): reference"));
  CHECK(Contains(ToJson(explanation), "\"bodies\": [{\"name\": \"body\", \"nodes\": [{"));
  CHECK(Contains(ToDot(plan), "Scale"));
  CHECK(Contains(ToSvg(plan), "v3/v1"));
}

TEST_CASE("a body whose shapes are open until a run is planned with that run") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {Sym("N")});
  for (int i = 0; i < 4; ++i)
    g.AddNode(Scale(i == 0 ? "x" : StrCat("v", i - 1).c_str(), StrCat("v", i).c_str(), 2));
  g.AddOutput("v3");
  Executor exec(Compile(WithBody(g, 1, 3)));
  for (const int64_t n : {3, 5, 3}) {
    const Tensor x = Tensor::From<float>({n}, std::vector<float>(static_cast<size_t>(n), 1));
    CHECK(exec.Run({{"x", x}})[0].ToVector<float>() ==
          std::vector<float>(static_cast<size_t>(n), 16));
  }
}

TEST_CASE("a run ends inside a body when it is cancelled, or when a node there fails") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {2});
  g.AddNode(OperatorDef("CancelRun", {"x"}, {"a"}));
  g.AddNode(OperatorDef("CountRun", {"a"}, {"y"}));
  g.AddOutput("y");
  for (const int threads : {1, 2}) {
    g_counted = 0;
    Executor exec(Compile(WithBody(g, 0, 2), {.threads = threads, .passes = &kNoPasses}));
    const Tensor x = Tensor::From<float>({2}, {1, 2});
    g_cancelled = &exec;
    CHECK(ErrorOf([&] { exec.Run({{"x", x}}); }).code() == ErrorCode::kCancelled);
    g_cancelled = nullptr;
    CHECK(g_counted == 0);
    for (int run = 0; run < 2; ++run)
      CHECK(exec.Run({{"x", x}})[0].ToVector<float>() == std::vector<float>{1, 2});
    const std::string failed = ErrorOf([&] { exec.Run({{"x", x}}); }).what();
    for (const char* part : {"CountRun", "in body", "Subgraph 's'"}) CHECK(Contains(failed, part));
    CHECK(exec.Run({{"x", x}})[0].ToVector<float>() == std::vector<float>{1, 2});
  }
}

TEST_CASE("bodies a hundred deep run") {
  Graph g;
  g.AddInput("a", DType::kFloat32, {2}).AddNode(Scale("a", "b", 2));
  g.AddOutput("b");
  for (int depth = 0; depth < Rounds(100); ++depth) {
    Graph outer;
    outer.AddInput("a", DType::kFloat32, {2});
    outer.AddNode(OperatorDef("Subgraph", {"a"}, {"b"}).Subgraph("body", MakeSubgraph(g)));
    outer.AddOutput("b");
    g = std::move(outer);
  }
  Executor exec(Compile(g));
  CHECK(exec.Run({{"a", Tensor::From<float>({2}, {1, 2})}})[0].ToVector<float>() ==
        std::vector<float>{2, 4});
}

}  // namespace node_bodies_test
