// Partition and Compile with partitioners: options, order, answers that are wrong, the report.
#include "opkit/graph/partition/partition.hpp"

#include <nlohmann/json.hpp>

#include "graph/partition/partition_graphs.hpp"
#include "opkit/partition.hpp"
#include "support/awkward.hpp"
#include "support/sanitizers.hpp"
#include "support/tensors.hpp"

namespace partition_test {
using namespace partition_graphs;

namespace partition_ops {

inline const Graph& BodyOf(const OperatorDef& def) {
  const Graph* body = SubgraphOf(def, "body");
  if (!body) Throw(ErrorCode::kInvalidArgument, "RunBody needs the subgraph 'body'");
  return *body;
}

// Runs the subgraph that it carries.
class RunBodyOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  RunBodyOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), executor_(Compile(BodyOf(def), {.threads = 1})) {}
  bool RunOnDevice() override {
    std::vector<NamedTensor> inputs;
    const Graph& body = BodyOf(def());
    for (int i = 0; i < InputSize(); ++i)
      inputs.push_back({body.inputs()[static_cast<size_t>(i)].name, Input(i)});
    const NamedTensors found = executor_.Run(inputs);
    for (int o = 0; o < OutputSize(); ++o) OutputTensorCopyFrom(o, found[static_cast<size_t>(o)]);
    return true;
  }

 private:
  Executor executor_;
};
OPERATOR_SCHEMA(RunBody)
    .NumInputs(0, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .NeedsSubgraph()
    .Arg("note", "")
    .Infer([](InferenceContext& c) {
      const GraphView view(BodyOf(c.def()));
      const GraphTypes types = InferGraph(view);
      for (int o = 0; o < c.num_outputs(); ++o) {
        const TensorInfo& info = types[view.outputs()[static_cast<size_t>(o)]];
        c.SetOutput(o, info.dtype, info.shape);
      }
    });
REGISTER_CPU_OPERATOR(RunBody, RunBodyOp);

// Hands its input on, whatever its body says.
class SkipOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(Skip).NumInputs(1).NumOutputs(1).NeedsSubgraph().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Skip, SkipOp);
class RepeatOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  RepeatOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), times_(def.type() == "Slow" ? 100'000 : 50'000) {}
  bool RunOnDevice() override {
    for (int i = 0; i < times_; ++i) OutputTensorCopyFrom(0, Input(0));
    return true;
  }

 private:
  const int times_;
};
OPERATOR_SCHEMA(Slow).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Slow, RepeatOp);
OPERATOR_SCHEMA(RunOften).NumInputs(1).NumOutputs(1).NeedsSubgraph().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RunOften, RepeatOp);
REGISTER_PARTITIONER(skips_or_repeats)
    .setSupportedOps([](const PartitionView& view, PartitionAnswer& answer) {
      for (const PartitionNode& node : view.nodes())
        if (node.op() != "Scale") answer.Take(node, node.op() == "Slow" ? 0 : 1);
    })
    .setSubgraphOp("Skip", 0)
    .setSubgraphOp("RunOften", 1);

void TakeChosen(const PartitionView& view, PartitionAnswer& answer) {
  if (CurrentChoice().take) CurrentChoice().take(view, answer);
}
void ReviewChosen(SubgraphReview& review) {
  if (CurrentChoice().review) CurrentChoice().review(review);
}
REGISTER_PARTITIONER(chosen)
    .setSupportedOps(TakeChosen)
    .setSubgraphOp("RunBody")
    .setAcceptSubgraph(ReviewChosen);
REGISTER_PARTITIONER(relus)
    .setSupportedOps([](const PartitionView& view, PartitionAnswer& answer) {
      for (const PartitionNode& node : view.nodes())
        if (node.op() == "Relu") answer.Take(node);
    })
    .setSubgraphOp("RunBody");
REGISTER_PARTITIONER(everything)
    .setSupportedOps([](const PartitionView& view, PartitionAnswer& answer,
                        const PartitionArguments& options) {
      for (const auto& option : options)
        if (option.first != "ignored")
          Throw(ErrorCode::kInvalidArgument, "everything has no option '", option.first, "'");
      for (const PartitionNode& node : view.nodes()) answer.Take(node);
    })
    .setSubgraphOp("RunBody");
REGISTER_PARTITIONER(no_such_operator)
    .setSupportedOps([](const PartitionView& view, PartitionAnswer& answer) {
      answer.Take(view.node(0));
    })
    .setSubgraphOp("RunBodies");

}  // namespace partition_ops

namespace {

// X - Relu a - Scale b - Relu c - Relu d - MatMul m - Y.
Graph Chain() {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A").Name("a"));
  g.AddNode(Scale("A", "B", 2).Name("b"));
  g.AddNode(Relu("B", "C").Name("c"));
  g.AddNode(Relu("C", "D").Name("d"));
  g.AddNode(OperatorDef("MatMul").Input("D").Input("D").Output("Y").Name("m"));
  return g.AddOutput("Y");
}

}  // namespace

TEST_CASE("a partitioner's nodes are replaced by its operator, which carries them") {
  const Graph graph = Chain();
  const Graph after = Partition(graph, "relus", {{"min_size", "2"}});
  CHECK(Ops(after) == "Relu Scale RunBody MatMul");
  const OperatorDef& node = after.node(2);
  CHECK(node.name() == "RunBody0");
  CHECK(node.inputs() == std::vector<std::string>{"B"});
  CHECK(node.outputs() == std::vector<std::string>{"D"});
  CHECK(ToString(*SubgraphOf(node, "body")) ==
        "input B float32[4, 4]\nRelu 'c' (B) -> (C)\nRelu 'd' (C) -> (D)\noutput D\n");
  CheckSameResults(graph, after, 1);
  CHECK(Ops(Partition(graph, "relus")) == "RunBody Scale RunBody MatMul");
  CHECK(Ops(Partition(graph, "everything")) == "RunBody");
}

TEST_CASE("a plan is partitioned after inference and folding, and runs") {
  Graph graph = Chain();
  graph.AddConstant("K", RandomTensor(Shape{4, 4}, DType::kFloat32, 1));
  graph.AddNode(Relu("K", "F"));
  graph.AddNode(Add("F", "Y", "Z"));
  graph.AddOutput("Z");
  int asked = 0;
  const ChoiceScope choice({[&](const PartitionView& view, PartitionAnswer& answer) {
                              ++asked;
                              CHECK(view.FindValue("F").constant());  // folded
                              CHECK(view.FindValue("Z").shape() == SymbolicShape{4, 4});
                              TakeOps({"Relu", "Scale"})(view, answer);
                            },
                            {}});
  const Plan plan = Compile(graph, {.partitioners = {"chosen"}});
  CHECK(asked == 1);
  CHECK(Ops(plan.graph()) == "RunBody MatMul Add");
  CHECK(plan.partition_report().num_taken() == 4);
  CHECK(ErrorOf([&] { Compile(Chain()).partition_report(); }).code() ==
        ErrorCode::kFailedPrecondition);
  const auto inputs = RandomInputs(graph, 1);
  const auto expected = RunInOrder(graph, inputs);
  Executor exec(plan);
  const NamedTensors out = exec.Run({{"X", inputs[0]}});
  CHECK(FloatsOf(out.Get("Y")) == FloatsOf(expected[0]));
  CHECK(FloatsOf(out.Get("Z")) == FloatsOf(expected[1]));
}

TEST_CASE("partitioners run in order, and a later one gets only the nodes that are left") {
  const Graph graph = Chain();
  PartitionReport report;
  const Graph after = Partition(graph, {{"relus", {{"min_size", "2"}}}, "everything"}, &report);
  CHECK(Ops(after) == "RunBody RunBody RunBody");
  CHECK(report.subgraphs.size() == 3);
  CHECK(report.nodes[2].subgraph == 0);
  CHECK(report.nodes[0].subgraph == 1);
  CHECK(report.nodes[4].subgraph == 2);
  CheckSameResults(graph, after, 2);
  const Graph nested = Partition(graph, {"relus", {"everything", {{"see_taken", "true"}}}});
  CHECK(Ops(nested) == "RunBody");
  CHECK(Ops(*SubgraphOf(nested.node(0), "body")) == "RunBody Scale RunBody MatMul");
  CheckSameResults(graph, nested, 2);
}

TEST_CASE("options of every partitioner") {
  const Graph graph = Chain();
  const auto ops = [&](PartitionArguments options) {
    const Graph after = Partition(graph, "everything", std::move(options));
    CheckSameResults(graph, after, 1);
    return Ops(after);
  };
  CHECK(ops({{"exclude_ops", "Scale,MatMul"}}) == "RunBody Scale RunBody MatMul");
  CHECK(ops({{"exclude_nodes", "a,m"}}) == "Relu RunBody MatMul");
  CHECK(ops({{"exclude_ops", "Scale"}, {"min_size", "2"}}) == "Relu Scale RunBody");
  CHECK(ops({{"max_size", "3"}}) == "RunBody RunBody");
  CHECK(ops({{"exclude_ops", "Scale"}, {"max_subgraphs", "1"}}) == "Relu Scale RunBody");
  CHECK(ops({{"require_all", "true"}, {"ignored", "x"}}) == "RunBody");
  const auto error = [&](PartitionArguments options) {
    return ErrorOf([&] { Partition(graph, "everything", options); });
  };
  const Error outside = error({{"exclude_ops", "Scale"}, {"min_size", "2"}, {"require_all", "1"}});
  CHECK(outside.code() == ErrorCode::kFailedPrecondition);
  CHECK(Contains(outside.what(),
                 "require_all is set, and 2 of 5 nodes stay outside:\n"
                 "  Relu 'a' (X) -> (A): too small: 1 of at least 2 nodes\n"
                 "  Scale 'b' (A) -> (B): excluded: operator Scale"));
  CHECK(Contains(error({{"min_size", "0"}}).what(), "a number from 1 on, found '0'"));
  CHECK(Contains(error({{"max_size", "2x"}}).what(), "a number from 1 on, found '2x'"));
  CHECK(Contains(error({{"min_size", "4"}, {"max_size", "3"}}).what(),
                 "max_size is 3, less than min_size, which is 4"));
  CHECK(Contains(error({{"require_all", "yes"}}).what(), "true or false, found 'yes'"));
  CHECK(Contains(error({{"min_size", "2"}, {"min_size", "3"}}).what(), "given twice"));
  CHECK(error({{"exclude_nodes", "aa"}}).code() == ErrorCode::kNotFound);
  const Error own = error({{"level", "9"}});
  CHECK(Contains(own.what(), "everything has no option 'level'\n  in partitioner 'everything'"));
}

TEST_CASE("a subgraph is kept only where its operator is measured to be faster") {
  // Slow copies its input 100,000 times, and RunOften its own 50,000 times.
  Graph graph = WithInputs({"X"});
  graph.AddNode(OperatorDef("Slow").Input("X").Output("A"));
  graph.AddNode(Scale("A", "B", 2));
  graph.AddNode(Relu("B", "C"));
  graph.AddOutput("C");
  PartitionReport report;
  const Graph after = Partition(graph, "skips_or_repeats", {{"accept_if_faster", "true"}}, &report);
  CHECK(Ops(after) == "Skip Scale Relu");
  REQUIRE(report.subgraphs.size() == 2);
  CHECK(report.subgraphs[0].own_ns > 0);
  CHECK(report.subgraphs[0].own_ns < report.subgraphs[0].flat_ns);
  CHECK(report.subgraphs[1].own_ns >= report.subgraphs[1].flat_ns);
  CHECK(report.subgraphs[1].rejected.starts_with("not faster: "));
  CHECK(Contains(ToString(report), " ns as the nodes that it replaces\n"));
  Graph open;
  open.AddInput("X", DType::kFloat32, {Sym("N"), 4});
  open.AddNode(Relu("X", "A"));
  open.AddOutput("A");
  const Error error = ErrorOf([&] { Partition(open, "relus", {{"accept_if_faster", "true"}}); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(Contains(error.what(), "'X' is float32[N, 4]; declare the shapes of the graph's inputs"));
}

TEST_CASE("an unregistered partitioner is an error with the nearest name") {
  const Error error = ErrorOf([] { Partition(Chain(), "relu"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.what(), "no partitioner 'relu' is registered (did you mean 'relus'?"));
  CHECK(ErrorOf([] { Compile(Chain(), {.partitioners = {"relu"}}); }).code() ==
        ErrorCode::kNotFound);
  const Error op = ErrorOf([] { Partition(Chain(), "no_such_operator"); });
  CHECK(Contains(op.what(),
                 "the subgraph operator 'RunBodies' is not registered (did you mean "
                 "'RunBody'?"));
  CHECK(Contains(op.what(), "in partitioner 'no_such_operator'"));
}

TEST_CASE("unregistered operators can be taken, and those that are left are listed") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "A"));
  graph.AddNode(OperatorDef("Alien").Input("A").Output("B").Name("one"));
  graph.AddNode(OperatorDef("Aliens").Input("B").Output("C").Name("two"));
  graph.AddNode(Relu("C", "D"));
  graph.AddOutput("D");
  CHECK(ErrorOf([&] { Compile(graph); }).code() == ErrorCode::kNotFound);
  const ChoiceScope choice({[](const PartitionView& view, PartitionAnswer& answer) {
                              const PartitionNode one = view.FindNode("one");
                              CHECK_FALSE(one.is_registered());
                              CHECK(one.output(0).dtype() == DType::kUndefined);
                              CHECK(view.node(0).is_registered());
                              answer.Take("two");
                            },
                            {}});
  const Error left = ErrorOf([&] { Compile(graph, {.partitioners = {"relus"}}); });
  CHECK(left.code() == ErrorCode::kNotFound);
  CHECK(Contains(left.what(), "2 nodes have an operator that is not registered"));
  CHECK(Contains(left.what(), "\n  Alien 'one' (A) -> (B)\n  Aliens 'two' (B) -> (C)"));
}

TEST_CASE("wrong answers are refused with the reason") {
  const Graph graph = Chain();
  const auto error = [&](std::function<void(const PartitionView&, PartitionAnswer&)> take) {
    const ChoiceScope choice({std::move(take), {}});
    const Error found = ErrorOf([&] { Partition(graph, "chosen"); });
    CHECK(Contains(found.what(), "in partitioner 'chosen'"));
    return found;
  };
  CHECK(Contains(error([](auto&, PartitionAnswer& answer) { answer.Take(5); }).what(),
                 "the answer names node 5, but the graph has 5 nodes"));
  CHECK(error([](auto&, PartitionAnswer& answer) { answer.Take(-1); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(Contains(error([](auto&, PartitionAnswer& answer) { answer.Take(0, -2); }).what(),
                 "for the kind -2"));
  CHECK(error([](auto&, PartitionAnswer& answer) { answer.Take(0, 0, -1); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(Contains(error([](auto&, PartitionAnswer& answer) { answer.Take("aa"); }).what(),
                 "the answer names node 'aa', which the graph does not have (did you mean"));
  CHECK(Contains(error([](auto&, PartitionAnswer&) { throw std::runtime_error("no idea"); }).what(),
                 "no idea"));
  CHECK(Contains(error([](auto&, PartitionAnswer&) { throw 3; }).what(), "in partitioner"));
}

TEST_CASE("a review rejects, adds attributes and constants") {
  const Graph graph = Chain();
  const auto take = TakeOps({"Relu"});
  std::vector<std::string> seen;
  {
    const ChoiceScope choice({take, [&](SubgraphReview& review) {
                                seen.push_back(
                                    StrCat(review.id(), " ", review.nodes(), " ", review.IsArg(0)));
                                review.Reject("not today");
                              }});
    PartitionReport report;
    const Graph after = Partition(graph, "chosen", {}, &report);
    CHECK(SameGraph(after, graph));
    CHECK(report.num_taken() == 0);
    CHECK(report.subgraphs[1].rejected == "rejected: not today");
    CHECK(seen == std::vector<std::string>{"0 [0] true", "1 [2, 3] false"});
    CHECK(ErrorOf([&] {
            Partition(graph, "chosen", {{"require_all", "true"}});
          }).code() == ErrorCode::kFailedPrecondition);
  }
  {
    const Tensor packed = RandomTensor(Shape{3}, DType::kFloat32, 1);
    const ChoiceScope choice({take, [&](SubgraphReview& review) {
                                review.SetAttribute("note", "packed");
                                review.AddConstant("packed", packed);
                              }});
    const Graph after = Partition(graph, "chosen");
    CHECK(after.node(0).args().Get<std::string>("note") == "packed");
    CHECK(SubgraphOf(after.node(0), "body")->FindConstant("packed")->raw_data() ==
          packed.raw_data());
    CheckSameResults(graph, after, 1);
  }
  {
    const ChoiceScope choice(
        {take, [&](SubgraphReview& review) { review.SetAttribute("notes", "x"); }});
    CHECK(Contains(ErrorOf([&] { Partition(graph, "chosen"); }).what(), "notes"));
  }
  {
    const ChoiceScope choice({take, [&](SubgraphReview& review) {
                                if (review.id() == 1) throw std::runtime_error("bad luck");
                              }});
    CHECK(Contains(ErrorOf([&] { Partition(graph, "chosen"); }).what(), "bad luck"));
  }
}

TEST_CASE("a subgraph that gives nothing is left alone, and kinds have operators of their own") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(OperatorDef("Report").Input("X").Name("r"));
  graph.AddNode(Relu("X", "A"));
  graph.AddOutput("A");
  PartitionReport report;
  CHECK(Ops(Partition(graph, "everything", {}, &report)) == "Report RunBody");
  CHECK(Contains(ToString(report), "everything: rejected: it has no outputs"));
}

TEST_CASE("nodes with effects keep their order, and nodes on other devices stay apart") {
  Graph graph;
  for (const char* name : {"A", "B", "C"})
    graph.AddNode(OperatorDef("Noise").Output(name).Name(name));
  graph.AddNode(OperatorDef("Sum", {"A", "C"}, {"S"}));
  graph.AddOutput("S").AddOutput("B");
  // A, C and S are one connected set; B comes between A and C.
  CHECK(Partition(graph, "everything", {{"exclude_nodes", "B"}}).num_nodes() == 3);
  Graph devices = Chain();
  OperatorDef elsewhere = devices.node(2);
  devices.ReplaceNode(2, elsewhere.Device(DeviceType::kCPUStream));
  PartitionReport report;
  CHECK(Ops(Partition(devices, "everything", {}, &report)) == "RunBody Relu RunBody");
  CHECK(Contains(ToString(report), "rejected: operator RunBody has no kernel for cpu_stream"));
}

TEST_CASE("the report has each node's partitioner or reason, and the values at the boundaries") {
  Graph graph = Chain();
  graph.AddNode(Add("A", "D", "E").Name("e"));
  graph.AddOutput("E");
  const ChoiceScope choice({[](const PartitionView& view, PartitionAnswer& answer) {
                              TakeOps({"Relu", "Add"})(view, answer);
                              answer.Refuse(view.FindNode("m"), "too large for the device");
                            },
                            {}});
  PartitionReport report;
  Partition(graph, "chosen", {{"min_size", "2"}}, &report);
  CHECK(report.subgraphs.size() == 1);
  const PartitionReport::Subgraph& subgraph = report.subgraphs[0];
  CHECK(subgraph.nodes == std::vector<int>{2, 3, 5});
  CHECK(subgraph.inputs == std::vector<std::string>{"B", "A"});
  CHECK(subgraph.input_bytes == 128);
  CHECK(subgraph.outputs == std::vector<std::string>{"D", "E"});
  CHECK(subgraph.output_bytes == 128);
  const std::string text = ToString(report);
  CHECK(Contains(text, "3 of 6 nodes taken, in 1 subgraph\n"));
  CHECK(Contains(text,
                 "subgraph 0: chosen, RunBody 'RunBody0', 3 nodes\n  reads [B, A], 128 bytes; "
                 "makes [D, E], 128 bytes\n"));
  CHECK(Contains(text,
                 "stay; chosen: too small: 1 of at least 2 nodes; "
                 "with its neighbour it would close a cycle: Relu 'a' (X) -> (A)  ->  Scale "
                 "'b' (A) -> (B)  ->  Relu 'c' (B) -> (C)\n  Relu 0 'a'\n"));
  CHECK(Contains(text, "\nstay; chosen: unsupported\n  Scale 1 'b'\n"));
  CHECK(Contains(text, "\nstay; chosen: too large for the device\n  MatMul 4 'm'\n"));
  CHECK(Contains(text, "\nin subgraph 0\n  Relu 2 'c', 3 'd'; Add 5 'e'\n"));
  const std::string json = ToJson(report);
  CHECK(Contains(json, "{\"taken\": 3, \"of\": 6,"));
  CHECK(Contains(json,
                 "{\"partitioner\": \"chosen\", \"op\": \"RunBody\", \"name\": \"RunBody0\", "
                 "\"kind\": -1, \"nodes\": [2, 3, 5], \"inputs\": [\"B\", \"A\"]"));
  CHECK(Contains(json,
                 "{\"node\": 1, \"op\": \"Scale\", \"name\": \"b\", \"refused\": {\"chosen\": "
                 "\"unsupported\"}}"));
  PartitionReport twice;  // a partitioner that is asked twice gives its reasons under one key
  Partition(graph, {"chosen", "chosen"}, &twice);
  CHECK(Contains(ToJson(twice), "\"refused\": {\"chosen\": \"unsupported\"}}"));
  const std::string dot = ToDot(report);
  CHECK(Contains(dot, "subgraph cluster_g0 {"));
  CHECK(Contains(dot, "label=\"chosen\\nRunBody0\""));
  CHECK(Contains(dot, "  n2; n3; n5;\n"));
}

TEST_CASE("a report of any names and reasons is valid JSON") {
  Graph graph = WithInputs({"X"});
  std::string last = "X";
  std::vector<std::string> expected;
  for (const auto& [name, utf8] : AwkwardNames()) {
    if (name.empty()) continue;
    graph.AddNode(OperatorDef("Relu", {last}, {name}).Name(name));
    expected.push_back(utf8);
    last = name;
  }
  graph.AddOutput(last);
  const auto refuse = [](const PartitionView& view, PartitionAnswer& answer) {
    for (const PartitionNode& node : view.nodes())
      if (node.index() % 2) answer.Refuse(node, node.name());
    answer.Take(2);
  };
  const ChoiceScope choice({refuse, {}});
  PartitionReport report;
  Partition(graph, "chosen", {}, &report);
  CHECK(!ToString(report).empty());
  const auto json = nlohmann::json::parse(ToJson(report));
  REQUIRE(json["nodes"].size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(json["nodes"][i]["name"] == expected[i]);
    if (i % 2) CHECK(json["nodes"][i]["refused"]["chosen"] == expected[i]);
  }
  CHECK(json["subgraphs"][0]["inputs"][0] == expected[1]);
  CHECK(json["subgraphs"][0]["outputs"][0] == expected[2]);
}

TEST_CASE("open extents are shown as symbols, and do not count as bytes") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 4});
  graph.AddNode(Relu("X", "A"));
  graph.AddOutput("A");
  PartitionReport report;
  const Graph after = Partition(graph, "relus", {}, &report);
  CHECK(SubgraphOf(after.node(0), "body")->inputs()[0].info.shape == SymbolicShape{Sym("N"), 4});
  CHECK(report.subgraphs[0].open_values == 2);
  CHECK(report.subgraphs[0].input_bytes == 0);
  Executor exec(Compile(after));
  for (const int64_t n : {1, 3}) {
    const Tensor x = RandomTensor(Shape{n, 4}, DType::kFloat32, 1);
    CHECK(exec.Run({{"X", x}})[0].shape() == Shape{n, 4});
  }
}

TEST_CASE("constants that two subgraphs read stay shared") {
  Graph graph = WithInputs({"X"});
  graph.AddConstant("W", RandomTensor(Shape{4, 4}, DType::kFloat32, 1));
  graph.AddNode(Add("X", "W", "A"));
  graph.AddNode(Scale("A", "B", 2));
  graph.AddNode(Add("B", "W", "C"));
  graph.AddOutput("C");
  const Graph after = Partition(graph, "everything", {{"exclude_ops", "Scale"}});
  REQUIRE(Ops(after) == "RunBody Scale RunBody");
  const void* data = graph.FindConstant("W")->raw_data();
  CHECK(SubgraphOf(after.node(0), "body")->FindConstant("W")->raw_data() == data);
  CHECK(SubgraphOf(after.node(2), "body")->FindConstant("W")->raw_data() == data);
  CHECK_FALSE(after.IsConstant("W"));
}

TEST_CASE("graphs in which values are rewritten are partitioned around that") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "T"));
  graph.AddNode(Scale("T", "P", 2));
  graph.AddNode(Accumulate("T", "X").Name("acc"));
  graph.AddNode(Add("T", "P", "Q"));
  graph.AddOutput("Q");
  CHECK(Ops(Partition(graph, "everything")) == "RunBody");
  const Graph without = Partition(graph, "everything", {{"exclude_ops", "Scale"}});
  CheckSameResults(graph, without, 1);
  PartitionReport report;
  Graph input = WithInputs({"T", "X"});
  input.AddNode(Accumulate("T", "X"));
  input.AddNode(Relu("T", "Y"));
  input.AddOutput("Y");
  CHECK(Ops(Partition(input, "everything", {}, &report)) == "Accumulate RunBody");
  CHECK(Contains(ToString(report), "rewrites 'T', which is made outside of the subgraph"));
}

TEST_CASE("random partitioners keep the results of random graphs to the bit") {
  size_t subgraphs = 0;
  for (uint64_t seed = 1; seed <= Rounds(400u); ++seed) {
    CAPTURE(seed);
    RandomGraphOptions options;
    options.nodes = 10 + static_cast<int>(seed % 30);
    options.inputs = 1 + static_cast<int>(seed % 3);
    options.constants = static_cast<int>(seed % 4);
    options.window = seed % 4 == 1 ? 3 : 0;
    options.rewrites = seed % 2 == 0;
    options.controls = seed % 3 == 0;
    options.shuffled = !options.rewrites && seed % 7 == 0;
    const Graph graph = RandomGraph(seed, options);
    const double probability = 0.2 + 0.2 * static_cast<double>(seed % 5);
    const bool kinds = seed % 3 == 1;
    const ChoiceScope choice({[&](const PartitionView& view, PartitionAnswer& answer) {
                                detail::CheckRandom random(seed);
                                for (int node = 0; node < view.num_nodes(); ++node)
                                  if (random.Uniform() < probability)
                                    answer.Take(node, kinds ? static_cast<int>(random.Next() % 2)
                                                            : kAnySubgraph);
                              },
                              {}});
    PartitionReport report;
    const Graph after = Partition(graph, "chosen", {}, &report);
    CheckSameResults(graph, after, seed);
    subgraphs += report.subgraphs.size();
    if (seed % 10 != 0) continue;
    Executor flat(Compile(graph, {.threads = 1})), parted(Compile(after, {.threads = 1}));
    std::vector<NamedTensor> inputs;
    const auto tensors = RandomInputs(graph, seed);
    for (size_t i = 0; i < tensors.size(); ++i)
      inputs.push_back({graph.inputs()[i].name, tensors[i]});
    const NamedTensors expected = flat.Run(inputs), found = parted.Run(inputs);
    for (const NamedTensor& output : expected)
      CHECK(detail::SameBytes(output.tensor, found.Get(output.name)));
  }
  CHECK(subgraphs > Rounds(400u) * 2);
}

}  // namespace partition_test
