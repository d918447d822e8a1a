// ProcessParts: random graphs on several processes give the results of one, and what cannot be cut
// is refused.
#include "opkit/cluster/process_parts.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "cluster/local_runs.hpp"
#include "graph/random_graph.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/functions.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/all.hpp"
#include "support/accumulate_op.hpp"
#include "support/check_fails.hpp"
#include "support/sanitizers.hpp"
#include "support/watchdog.hpp"

namespace process_parts_test {
using namespace opkit;

// An operator of random graphs, as Accumulate, that is no standard operator.
namespace parts_ops {

template <class Context>
void Scale(Context& ctx, In<"x", float> x, Out<"y", float> y, Attr<"scale", float> scale) {
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = scale * x[i]; });
}
OPKIT_OP(Scale).SameShape<"x", "y">().Default<"scale">(1.f).Kernel<CPUContext>();

}  // namespace parts_ops

namespace {

// Gives the nodes of a graph random processes. Nodes that use a rewritten value get one process. A
// node Identity may become a collective that gives each process the same value.
Graph WithRandomProcesses(Graph graph, int processes, detail::CheckRandom& random) {
  const auto below = [&](int count) {
    return static_cast<int>(random.Next() % static_cast<uint64_t>(count));
  };
  const GraphView view{graph};
  std::vector<size_t> root(static_cast<size_t>(graph.num_nodes()));
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](int node) {
    size_t at = detail::Index(node);
    while (root[at] != at) at = root[at];
    return at;
  };
  for (const GraphView::Rewrite& rewrite : view.rewrites()) {
    const auto join = [&](int node) {
      if (node >= 0) root[find(node)] = find(rewrite.node);
    };
    join(view.producer(rewrite.value));
    for (const int consumer : view.consumers(rewrite.value)) join(consumer);
  }
  std::vector<int> place(root.size(), -2);
  std::vector<char> is_joined(root.size(), 0);
  for (int node = 0; node < graph.num_nodes(); ++node)
    if (find(node) != detail::Index(node))
      is_joined[find(node)] = is_joined[detail::Index(node)] = 1;
  std::vector<OperatorDef> nodes;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    int& process = place[find(node)];
    if (process == -2)
      process = is_joined[find(node)] ? below(processes) : below(processes + 1) - 1;
    OperatorDef def = graph.node(node);
    if (def.type() == "Identity" && !is_joined[detail::Index(node)] && below(2) == 0) {
      const int first = below(processes), last = first + below(processes - first);
      std::vector<int64_t> group;
      for (int64_t i = first; i <= last; ++i) group.push_back(i);
      const bool is_broadcast = below(2) == 0;
      def.Type(is_broadcast ? "opkit.cluster.Broadcast" : "opkit.cluster.AllReduce");
      if (is_broadcast)
        def.Arg("root", int64_t{first});
      else
        def.Arg("reduction", "max");
      nodes.push_back(std::move(def.Arg("group", std::move(group))));
    } else {
      nodes.push_back(std::move(def.Process(process)));
    }
  }
  for (size_t node = 0; node < nodes.size(); ++node)
    graph.ReplaceNode(static_cast<int>(node), std::move(nodes[node]));
  return graph;
}

// Runs the graph on the processes of a LocalCluster. Returns its outputs, each from all processes
// that make it.
std::vector<std::pair<std::string, Tensor>> RunOnCluster(const Graph& graph, int processes,
                                                         const std::vector<NamedTensor>& inputs,
                                                         int runs = 1) {
  std::vector<std::pair<std::string, Tensor>> all;
  std::mutex mutex;
  LocalCluster cluster(processes);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const std::vector<NamedTensor> own = InputsOf(exec, inputs);
    NamedTensors out;
    for (int run = 0; run < runs; ++run) out = exec.Run(own);
    const std::lock_guard lock(mutex);
    for (const auto& [name, tensor] : out) all.emplace_back(name, tensor);
  });
  return all;
}

TEST_CASE("random graphs on several processes give the results of one") {
  for (uint64_t seed = 1; seed <= Rounds(uint64_t{1000}); ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    const auto below = [&](int count) {
      return static_cast<int>(random.Next() % static_cast<uint64_t>(count));
    };
    const bool rewrites = below(3) == 0;
    const RandomGraphOptions options{.nodes = 1 + below(16),
                                     .size = 2,
                                     .window = below(3) == 0 ? 3 : 0,
                                     .rewrites = rewrites,
                                     .shuffled = !rewrites && below(4) == 0};
    const Graph plain = RandomGraph(seed, options);
    const std::vector<Tensor> inputs = RandomInputs(plain, seed);
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < inputs.size(); ++i) named.push_back({plain.inputs()[i].name, inputs[i]});
    const std::vector<Tensor> expected = RunInOrder(plain, inputs);
    const int processes = 1 + below(5);
    CAPTURE(processes);
    const Graph graph = WithRandomProcesses(plain, processes, random);
    const ProcessParts parts(graph, processes);
    std::map<std::string, std::vector<int>> readers, makers;
    for (int p = 0; p < processes; ++p) {
      const Graph part = parts.Part(p);
      for (const Graph::Input& input : part.inputs()) readers[input.name].push_back(p);
      for (const std::string& output : part.outputs()) makers[output].push_back(p);
    }
    for (const NamedTensor& input : named)
      CHECK(parts.ReadersOfInput(input.name) == readers[input.name]);
    for (const std::string& output : graph.outputs())
      CHECK(parts.MakersOfOutput(output) == makers[output]);
    std::vector<int> seen(expected.size(), 0);
    for (const auto& [name, tensor] : RunOnCluster(graph, processes, named, 2))
      for (size_t i = 0; i < expected.size(); ++i)
        if (plain.outputs()[i] == name) {
          CHECK(detail::SameBytes(tensor, expected[i]));
          ++seen[i];
        }
    for (const int count : seen) CHECK(count > 0);
  }
}

std::vector<float> FloatsOf(const std::vector<std::pair<std::string, Tensor>>& outputs,
                            std::string_view name) {
  for (const auto& [output, tensor] : outputs)
    if (output == name) return tensor.ToVector<float>();
  return {};
}

TEST_CASE("Compile without a communicator shows the part of a process") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddOutput("b");
  PlanOptions options;
  options.cluster.process = 1;
  options.cluster.processes = 2;
  REQUIRE(bool(detail::g_process_part));
  const Graph part = Compile(graph, options).graph();
  REQUIRE(part.num_nodes() == 2);
  CHECK(part.node(0).type() == "opkit.cluster.Recv");
  CHECK(part.inputs().empty());
  CHECK(part.outputs() == std::vector<std::string>{"b"});
  Graph sum;
  sum.AddInput("x", DType::kFloat32, {2});
  sum.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  sum.AddOutput("y");
  Executor alone(Compile(sum, options));
  CheckFails(
      [&] {
        alone.Run({{"x", Tensor::From<float>({2}, {1, 2})}});
      },
      "its plan was made without a communicator");
}

TEST_CASE("a value of unknown shape and a batch of any size cross") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {Sym("N")});
  graph.AddNode(OperatorDef("NonZero", {"x"}, {"places"}).Process(0));
  graph.AddNode(OperatorDef("Neg", {"x"}, {"minus"}).Process(2));
  graph.AddNode(OperatorDef("Cast", {"places"}, {"floats"}, {{"to", 1}}).Process(1));
  graph.AddNode(OperatorDef("ReduceSum", {"floats"}, {"sum"}, {{"keepdims", 0}}).Process(2));
  graph.AddNode(OperatorDef("Mul", {"minus", "sum"}, {"y"}).Process(1));
  graph.AddOutput("y");
  LocalCluster cluster(3);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    for (int64_t n = 1; n <= 4; ++n) {
      std::vector<NamedTensor> inputs;
      if (exec.plan().graph().IsInput("x"))
        inputs.push_back({"x", Tensor::From<float>({n}, std::vector<float>(detail::Index(n), 1))});
      const NamedTensors out = exec.Run(inputs);
      CHECK(out.size() == (communicator->process() == 1 ? 1 : 0));
      const auto sum = static_cast<float>(n * (n - 1) / 2);
      if (out.size() == 1)
        CHECK(out[0].ToVector<float>() == std::vector<float>(detail::Index(n), -sum));
    }
  });
}

TEST_CASE("outputs of several processes, and processes without nodes") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1}).AddInput("unused", DType::kFloat32, {1});
  graph.AddConstant("one", Tensor::From<float>({1}, {1}));
  graph.AddNode(OperatorDef("Add", {"x", "one"}, {"everywhere"}));
  graph.AddNode(OperatorDef("Neg", {"x"}, {"second"}).Process(1));
  graph.AddNode(OperatorDef("Exp", {"x"}, {"nobody reads this"}));
  graph.AddOutput("everywhere").AddOutput("second").AddOutput("one");
  const ProcessParts parts(graph, 3);
  CHECK(parts.crossing().empty());
  CHECK(parts.processes_of(0) == std::vector<int>{0, 1, 2});
  CHECK(parts.Part(0).num_nodes() == 1);
  CHECK(parts.Part(0).outputs() == std::vector<std::string>{"everywhere", "one"});
  CHECK(parts.Part(1).outputs() == graph.outputs());
  CHECK(!parts.Part(1).IsInput("unused"));
  const auto out = RunOnCluster(graph, 3, {{"x", Tensor::From<float>({1}, {5})}});
  CHECK(out.size() == 7);
  CHECK(FloatsOf(out, "everywhere") == std::vector<float>{6});
  CHECK(FloatsOf(out, "second") == std::vector<float>{-5});

  Graph lone;
  lone.AddInput("x", DType::kFloat32, {1});
  lone.AddNode(OperatorDef("Neg", {"x"}, {"y"}).Process(1));
  lone.AddOutput("y");
  CHECK(ProcessParts(lone, 3).Part(0).num_nodes() == 0);
  CHECK(ProcessParts(lone, 3).Part(0).inputs().empty());
  CHECK(FloatsOf(RunOnCluster(lone, 3, {{"x", Tensor::From<float>({1}, {5})}}), "y") ==
        std::vector<float>{-5});
}

TEST_CASE("an explanation has the messages and their bytes") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {8});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddOutput("b");
  const auto explained = [&](int process) {
    PlanOptions options;
    options.cluster.process = process;
    options.cluster.processes = 2;
    return ToString(Compile(graph, options).Explain());
  };
  CHECK_MESSAGE(Contains(explained(0), "Send 'a to process 1' (a) -> (), 32 bytes: reference"),
                explained(0));
  CHECK_MESSAGE(Contains(explained(1), "Recv 'a from process 0' () -> (a), 32 bytes: reference"),
                explained(1));
}

Graph Branch(OperatorDef node) {
  Graph body;
  body.AddInput("a", DType::kUndefined, {});
  body.AddNode(std::move(node));
  return body.AddOutput("r");
}

TEST_CASE("a node with graphs runs on one process") {
  OperatorDef choose("If", {"take", "a"}, {"b"}, {{"captures", std::vector<std::string>{"a"}}});
  choose.Subgraph("then_branch", MakeSubgraph(Branch(OperatorDef("Abs", {"a"}, {"r"}))))
      .Subgraph("else_branch",
                MakeSubgraph(Branch(OperatorDef("Concat", {"a", "a"}, {"r"}, {{"axis", 0}}))));
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1}).AddInput("take", DType::kBool, Shape{});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef(choose).Process(1));
  graph.AddNode(OperatorDef("Exp", {"b"}, {"c"}).Process(2));
  graph.AddNode(OperatorDef("Log", {"c"}, {"d"}).Process(0));
  graph.AddOutput("b").AddOutput("d");
  for (const bool take : {true, false}) {
    const auto out = RunOnCluster(
        graph, 3, {{"x", Tensor::From<float>({1}, {2})}, {"take", Tensor::Scalar(take)}}, 2);
    CHECK(FloatsOf(out, "b") == (take ? std::vector<float>{2} : std::vector<float>{-2, -2}));
    REQUIRE(FloatsOf(out, "d").size() == (take ? 1 : 2));
    CHECK(FloatsOf(out, "d")[0] == doctest::Approx(take ? 2 : -2));
  }
  OperatorDef bad("If", {"take", "a"}, {"b"}, {{"captures", std::vector<std::string>{"a"}}});
  for (const char* branch : {"then_branch", "else_branch"})
    bad.Subgraph(branch, MakeSubgraph(Branch(OperatorDef("Abs", {"a"}, {"r"}).Process(1))));
  graph.ReplaceNode(1, std::move(bad));
  CheckFails([&] { ProcessParts(graph, 3); },
             "but a graph inside a node runs on one process and does not communicate");
}

TEST_CASE("what cannot be cut is refused") {
  const auto two = [](OperatorDef first, OperatorDef second) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(std::move(first));
    graph.AddNode(std::move(second));
    return graph;
  };
  CheckFails([&] { ProcessParts(Graph(), 0); }, "a graph has 0 processes, expected 1 or more");
  CheckFails([&] { ProcessParts(Graph(), 2).Part(2); }, "there is no process 2: the graph has 2");
  CheckFails(
      [&] {
        ProcessParts(
            two(OperatorDef("Neg", {"x"}, {"y"}).Process(2), OperatorDef("Neg", {"y"}, {"z"})), 2);
      },
      "names process 2, but there are processes 0 to 1");
  Graph rewritten = two(OperatorDef("Neg", {"x"}, {"y"}).Process(0),
                        OperatorDef("Accumulate", {"y", "x"}, {"y"}).Process(0));
  CHECK(ProcessParts(rewritten, 2).crossing().empty());
  rewritten.AddNode(OperatorDef("Neg", {"y"}, {"z"}).Process(1));
  CheckFails(
      [&] { ProcessParts(rewritten, 2); },
      "value 'y' is rewritten by the node Accumulate (y, x) -> (y) on process 0, and read by "
      "the node Neg (y) -> (z) on process 1");
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("Neg", {"x"}, {"y"}).Process(0),
                         OperatorDef("Accumulate", {"y", "x"}, {"y"}).Process(1)),
                     2);
      },
      "value 'y' is rewritten by a node, and read on another process than 0, which makes it");
  // An input, and a value that all processes make, has a copy on each process.
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("Accumulate", {"x", "x"}, {"x"}).Process(0),
                         OperatorDef("Neg", {"x"}, {"y"}).Process(1)),
                     2);
      },
      "value 'x' is rewritten by the node Accumulate (x, x) -> (x) on process 0");
  Graph rewritten_once = two(OperatorDef("Neg", {"x"}, {"y"}),
                             OperatorDef("Accumulate", {"y", "x"}, {"y"}).Process(0));
  rewritten_once.AddOutput("y");
  CHECK(ProcessParts(rewritten_once, 2).Part(0).outputs() == std::vector<std::string>{"y"});
  CHECK(ProcessParts(rewritten_once, 2).Part(1).outputs().empty());
  rewritten_once.AddNode(OperatorDef("Identity", {"y"}, {"z"}).Process(1));
  CheckFails([&] { ProcessParts(rewritten_once, 2); },
             "read by the node Identity (y) -> (z) on process 1, where it is not rewritten");
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("Neg", {"x"}, {"y"}).Process(0).Name("first"),
                         OperatorDef("Neg", {"x"}, {"z"}).Process(1).ControlInput("first")),
                     2);
      },
      "on process 1 waits for the node 'first', which runs on process 0");
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("SequenceConstruct", {"x"}, {"s"}).Process(0),
                         OperatorDef("SequenceLength", {"s"}, {"n"}).Process(1)),
                     2);
      },
      "which makes it; only tensors of numbers cross");
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}).Process(0),
                         OperatorDef("Neg", {"y"}, {"z"})),
                     2);
      },
      "do not set OperatorDef::Process");
  CheckFails(
      [&] {
        ProcessParts(two(OperatorDef("opkit.cluster.AllGather", {"x"}, {""}),
                         OperatorDef("Neg", {"x"}, {"z"})),
                     2);
      },
      "leaves out an output");
}

OperatorDef Message(const char* type, int here, int there, const std::string& value) {
  OperatorDef def(StrCat("opkit.cluster.", type));
  type == std::string_view("Send") ? def.Input(value) : def.Output(value);
  if (type == std::string_view("Recv"))
    def.Arg("dtype", static_cast<int64_t>(DType::kFloat32)).Arg("shape", std::vector<int64_t>{2});
  return def.Process(here).Arg("process", int64_t{there});
}

TEST_CASE("messages of the graph's author") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(Message("Send", 0, 1, "a"));
  graph.AddNode(Message("Recv", 1, 0, "b"));
  graph.AddNode(OperatorDef("Neg", {"b"}, {"c"}).Process(1));
  graph.AddNode(Message("Send", 1, 0, "c"));
  Graph lacking = graph;
  CheckFails([&] { ProcessParts(lacking, 2); }, "has no counterpart: no Recv from process 1");
  graph.AddNode(Message("Recv", 0, 1, "d"));
  graph.AddNode(OperatorDef("Add", {"d", "x"}, {"e"}).Process(0));
  graph.AddOutput("e");
  CHECK(FloatsOf(RunOnCluster(graph, 2, {{"x", Tensor::From<float>({2}, {1, 2})}}, 3), "e") ==
        std::vector<float>{2, 4});

  // Now each process receives before it sends what the other waits for.
  graph.ReplaceNode(0, OperatorDef("Neg", {"d"}, {"a"}).Process(0));
  const std::string message = ErrorOf([&] { ProcessParts(graph, 2); }).what();
  CHECK(Contains(message, "processes wait for each other in a circle: "));
  for (const char* node : {"Send (a)", "Recv () -> (b)", "Send (c)", "Recv () -> (d)"})
    CHECK_MESSAGE(Contains(message, node), message);

  Graph unknown = lacking;
  unknown.AddNode(
      OperatorDef("opkit.cluster.Recv", {}, {"d"}, {{"process", int64_t{1}}}).Process(0));
  CheckFails([&] { ProcessParts(unknown, 2); }, "the attributes dtype and shape are missing");
  Graph twice = lacking;
  twice.AddNode(Message("Send", 1, 0, "b"));
  CheckFails([&] { ProcessParts(twice, 2); }, "give one of them another attribute 'channel'");
}

// Each process has a node that takes much memory. If both first ran the node Neg, which takes
// little, both would wait for the other's value.
TEST_CASE("an order that saves memory does not make processes wait for each other") {
  const Watchdog watchdog(60);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("w", DType::kFloat32, {2});
  graph.AddConstant("shape", Tensor::From<int64_t>({2}, {100, 2}));
  for (int p = 0; p < 2; ++p) {
    const auto name = [&](const char* value) { return StrCat(value, p); };
    graph.AddNode(OperatorDef("Expand", {"w", "shape"}, {name("late")}).Process(p));
    graph.AddNode(OperatorDef("Expand", {"x", "shape"}, {name("large")}).Process(p));
    graph.AddNode(OperatorDef("ReduceSum", {name("large")}, {name("sum")}).Process(p));
  }
  for (int p = 0; p < 2; ++p) {
    graph.AddNode(OperatorDef("Neg", {StrCat("sum", 1 - p)}, {StrCat("n", p)}).Process(p));
    graph.AddNode(
        OperatorDef("Sub", {StrCat("sum", p), StrCat("n", p)}, {StrCat("y", p)}).Process(p));
    graph.AddNode(OperatorDef("ReduceSum", {StrCat("late", p)}, {StrCat("z", p)}).Process(p));
    graph.AddOutput(StrCat("y", p)).AddOutput(StrCat("z", p));
  }
  for (const bool is_deterministic : {true, false})
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      PlanOptions options = With(communicator);
      options.memory.reorder_nodes = true;
      options.schedule.deterministic = is_deterministic;
      options.threads = 1;
      const float p = static_cast<float>(communicator->process());
      const Tensor x = Tensor::From<float>({2}, {p, p}), w = Tensor::From<float>({2}, {1, 1});
      CHECK(Executor(Compile(graph, options)).Run({{"x", x}, {"w", w}})[0].ToVector<float>() ==
            std::vector<float>{200});
    });
}

// Process 0 sends before the collective, and process 1 receives after it.
TEST_CASE("a message around a collective does not stop an order that saves memory") {
  const Watchdog watchdog(60);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(Message("Send", 0, 1, "x"));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"sum"}));
  graph.AddNode(Message("Recv", 1, 0, "y"));
  graph.AddOutput("y").AddOutput("sum");
  LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
    PlanOptions options = With(communicator);
    options.schedule.deterministic = options.memory.reorder_nodes = true;
    Executor exec(Compile(graph, options));
    const NamedTensors outputs = exec.Run({{"x", Tensor::From<float>({2}, {1, 2})}});
    CHECK(outputs.Get("sum").ToVector<float>() == std::vector<float>{2, 4});
    CHECK((outputs.Find("y") != nullptr) == (communicator->process() == 1));
  });
}

TEST_CASE("names of the user's nodes do not collide with those that a plan gives") {
  const Watchdog watchdog(60);
  const auto run = [](const Graph& graph, float expected) {
    for (const bool is_in_order : {false, true})
      LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
        PlanOptions options = With(communicator);
        options.schedule.deterministic = options.memory.reorder_nodes = is_in_order;
        Executor exec(Compile(graph, options));
        const auto outputs = exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 1})}}));
        if (const Tensor* y = outputs.Find("y")) {
          const std::vector<float> found = y->ToVector<float>();
          CHECK(found == std::vector<float>{expected, expected});
        }
      });
  };
  const auto with = [](const std::string& node, const std::string& first,
                       const std::string& second) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Name(node));
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"a"}, {"b"}).Name(first));
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"b"}, {"y"}).Name(second));
    return graph.AddOutput("y");
  };
  run(with("communication 1", "", ""), -4);
  run(with("communication", "", "communication 2"), -4);
  run(with("", "sum", "sum"), -4);
  run(with("sum", "sum", "sum 1"), -4);
  // A control input names a node as the Recv would be named.
  Graph crossing;
  crossing.AddInput("x", DType::kFloat32, {2});
  crossing.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  crossing.AddNode(OperatorDef("Neg", {"a"}, {"b"}).Process(1).Name("a from process 0"));
  crossing.AddNode(OperatorDef("Exp", {"a"}, {"c"}).Process(1).ControlInput("a from process 0"));
  crossing.AddNode(OperatorDef("Identity", {"b"}, {"y"}).Process(1));
  crossing.AddOutput("c").AddOutput("y");
  run(crossing, 1);
}

TEST_CASE("attributes that no process, channel or dtype has are refused, not cut to fewer bits") {
  const int64_t wrong[] = {int64_t{1} << 32, (int64_t{1} << 32) + 1, int64_t{1} << 62,
                           std::numeric_limits<int64_t>::min(), -1};
  const auto with = [](OperatorDef def) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(std::move(def));
    return graph.AddOutput("y");
  };
  for (const int64_t number : wrong) {
    CAPTURE(number);
    const std::string names = StrCat("names process ", number);
    for (const char* type : {"Broadcast", "Scatter", "Reduce", "Gather"}) {
      const Graph graph =
          with(OperatorDef(StrCat("opkit.cluster.", type), {"x"}, {"y"}, {{"root", number}}));
      CheckFails([&] { ProcessParts(graph, 2); }, names);
      CheckFails(
          [&] {
            Executor(Compile(graph)).Run({{"x", Tensor::From<float>({2}, {1, 2})}});
          },
          names);
    }
    const Graph group = with(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"},
                                         {{"group", std::vector<int64_t>{number}}}));
    CheckFails([&] { ProcessParts(group, 2); }, names);
    CheckFails(
        [&] {
          Executor(Compile(group)).Run({{"x", Tensor::From<float>({2}, {1, 2})}});
        },
        names);
    const auto message = [&](const char* attribute) {
      Graph graph = with(Message("Recv", 1, 0, "y").Arg(attribute, number));
      graph.AddNode(Message("Send", 0, 1, "x"));
      return graph;
    };
    CheckFails([&] { ProcessParts(message("process"), 2); }, names);
    CheckFails([&] { ProcessParts(message("channel"), 2); },
               StrCat("has the channel ", number, ", expected 0 to 2147483647"));
    CheckFails([&] { ProcessParts(message("dtype"), 2); },
               StrCat("the attribute dtype is ", number, ", which is no DType"));
  }
}

}  // namespace
}  // namespace process_parts_test
