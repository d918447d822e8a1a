#include "opkit/plugin/load/library_partitioners.hpp"

#include <algorithm>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/ops/subgraph.hpp"
#include "plugin/library_fixture.hpp"
#include "support/check_fails.hpp"

namespace library_partitioners_test {
using namespace library_fixture;

namespace {

class NegOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    float* y = Output(0, x.shape(), x.dtype())->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) y[i] = -x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(PartNeg).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(PartNeg, NegOp);

class RunsBody final : public StatefulOp {
 public:
  explicit RunsBody(const opkit_graph& body) : body_(body) {}
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) override {
    res.run_graph(body_, in, out);
    return SUCCESS;
  }

 private:
  const opkit_graph& body_;
};
REGISTER_OP(PartRunsBody)
    .setCreateOpState([](const AttrMap&, OpContext context, StatefulOp** state) {
      *state = new RunsBody(*context.node->graphs[0]);
    })
    .input("x")
    .output("y")
    .noGradient()
    .setIsSubgraphOp();

// X -> each of the operators in turn -> Y, with nodes in reverse, so that the library's numbers are
// not the graph's.
Graph ChainOf(const std::vector<std::string>& ops) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  for (size_t i = ops.size(); i-- > 0;)
    graph.AddNode(OperatorDef(ops[i], {i == 0 ? "X" : StrCat("V", i)},
                              {i + 1 == ops.size() ? "Y" : StrCat("V", i + 1)})
                      .Name(StrCat("n", i)));
  graph.AddOutput("Y");
  return graph;
}
std::vector<std::string> TypesOf(const Graph& graph) {
  std::vector<std::string> types;
  const GraphView view(graph);
  for (const int node : view.order()) types.push_back(graph.node(node).type());
  return types;
}
using Types = std::vector<std::string>;

}  // namespace

TEST_CASE("a library's partitioner in MXNet's spelling takes chains, which its operator runs") {
  Scoped library("partitioner");
  CHECK(library->partitioners()[0] == "LibChains");
  const Graph graph = ChainOf({"LibExp", "LibLog", "PartNeg", "LibExp"});
  PartitionReport report;
  const Graph parted = Partition(graph, "LibChains", {}, &report);
  CHECK(TypesOf(parted) == Types{"LibChain", "PartNeg", "LibChain"});
  const OperatorDef& first = parted.node(parted.Producer("V2"));
  CHECK(first.args().Get<std::string>("text_has_log") == "yes");
  CHECK(first.args().Get<std::string>("constants") == "0");
  CHECK(report.num_taken() == 3);
  const auto run = [](const Graph& g) {
    return Executor(Compile(g)).Run({{"X", Vector({1, 2})}}).Get("Y").ToVector<float>();
  };
  CHECK(run(parted) == run(graph));
}

TEST_CASE("a library's functions may have every signature of a program's") {
  Scoped library("partitioner");
  const Graph graph = ChainOf({"LibExp", "PartNeg", "LibExp"});
  const auto note = [&](const char* name) {
    const Graph parted = Partition(graph, name, {{"op", "LibExp"}});
    CHECK(TypesOf(parted) == Types{"LibChain", "PartNeg", "LibChain"});
    const Arguments& last = parted.node(parted.Producer("Y")).args();
    return last.Has("note") ? last.Get<std::string>("note") : "none";
  };
  CHECK(note("LibSpelling_release") == "1 of release, constants: 0");
  CHECK(note("LibSpelling_count") == "1 by reference, constants: 0");
  CHECK(note("LibSpelling_bools") == "none");
  CHECK(note("LibSpelling_value") == "1 with attributes");
  CHECK(note("LibSpelling_pointer") == "1 by pointer, constants: 0");
  CHECK(SameGraph(Partition(graph, "LibSpelling_rejects", {{"op", "LibExp"}}), graph));
  CheckFails(
      [&] {
        Partition(graph, "LibSpelling_count", {{"op", "LibExp"}, {"id", "2"}});
      },
      "answered 2 for node 1 in int* ids, where 1 or -1 takes a node");
}

TEST_CASE("an operator of a library has its host run the graph that it has taken") {
  Scoped library("partitioner");
  const Graph graph = ChainOf({"LibExp", "LibLog", "PartNeg", "LibExp"});
  const Graph parted = Partition(graph, "LibChains", {{"in_host", ""}});
  CHECK(parted.node(0).args().Get<std::string>("in_host") == "yes");
  Executor executor(Compile(parted)), flat(Compile(graph));
  for (const Floats& x : {Floats{1, 2}, Floats{3}, Floats{0.5f, 2}})  // other shapes, and back
    CHECK(executor.Run({{"X", Vector(x)}}).Get("Y").ToVector<float>() ==
          flat.Run({{"X", Vector(x)}}).Get("Y").ToVector<float>());
}

TEST_CASE("a library's operator gets types and shapes from the graph that its node carries") {
  Scoped library("partitioner");
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("LibCarries", {"X"}, {"A"})
                    .Subgraph("body", MakeSubgraph(ChainOf({"LibExp", "LibLog"}))));
  graph.AddOutput("A");
  const GraphView view(graph);
  const TensorInfo info = InferGraph(view).Get("A");
  CHECK(info.dtype == DType::kFloat32);
  CHECK(info.shape == SymbolicShape{2});
  const auto run = [](const Graph& g, const char* output) {
    return Executor(Compile(g)).Run({{"X", Vector({1, 2})}}).Get(output).ToVector<float>();
  };
  CHECK(run(graph, "A") == run(ChainOf({"LibExp", "LibLog"}), "Y"));
}

TEST_CASE("a library's operator has as many values as the graph that its node carries") {
  Scoped library("partitioner");
  Graph body;
  body.AddInput("a", DType::kFloat32, {2}).AddInput("b", DType::kFloat32, {2});
  body.AddNode(OperatorDef("PartNeg", {"a"}, {"c"}));
  body.AddNode(OperatorDef("PartNeg", {"b"}, {"d"}));
  body.AddOutput("d").AddOutput("c");
  const auto around = [&](std::vector<std::string> inputs) {
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {2}).AddInput("Y", DType::kFloat32, {2});
    graph.AddNode(OperatorDef("LibCarriesAll", std::move(inputs), {"P", "Q"})
                      .Arg("in_host", "yes")
                      .Subgraph("body", MakeSubgraph(body)));
    return graph.AddOutput("P").AddOutput("Q");
  };
  const auto out =
      Executor(Compile(around({"X", "Y"}))).Run({{"X", Vector({1, 2})}, {"Y", Vector({3, 4})}});
  CHECK(out.Get("P").ToVector<float>() == Floats{-3, -4});
  CHECK(out.Get("Q").ToVector<float>() == Floats{-1, -2});
  CheckFails(
      [&] {
        Compile(around({"X", "Y", "X"}));
      },
      "LibCarriesAll has 3 inputs and 2 outputs, but the graph 'body' that it carries has 2 "
      "and 2");
}

TEST_CASE("wrong answers of a library's partitioner are reported with its name") {
  Scoped library("partitioner");
  const Graph graph = ChainOf({"LibExp", "PartNeg"});
  const auto with = [&](const char* option) {
    return ErrorOf([&] { Partition(graph, "LibChains", {{option, "its options"}}); }).message();
  };
  CHECK(Contains(with("fail"),
                 "mark of partitioner LibChains of library libpartitioner.so failed: "
                 "told to fail by its options"));
  CHECK(Contains(with("throw"), "told to throw"));
  CHECK(SameGraph(Partition(graph, "LibChains", {{"reject", ""}}), graph));
  // Nodes of one kind go to the operator of that kind.
  CHECK(TypesOf(Partition(graph, "LibChains", {{"kind", "7"}})) == Types{"LibChain", "PartNeg"});
  CheckFails([&] { Partition(graph, "LibChain"); }, "did you mean 'LibChains'?");
}

TEST_CASE("the typed form of a program is a library's as it stands") {
  Scoped library("partitioner_typed");
  CHECK(library->partitioners() == Types{"LibTyped", "LibTyped2"});
  const Graph graph = ChainOf({"PartNeg", "PartNeg", "Unknown", "PartNeg"});
  PartitionReport report;
  const Graph parted = Partition(graph, "LibTyped", {{"ops", "PartNeg"}}, &report);
  CHECK(TypesOf(parted) == Types{"Subgraph", "Unknown", "PartNeg"});
  const OperatorDef& taken = parted.node(parted.Producer("V2"));
  CHECK(taken.args().Get<int64_t>("size") == 2);
  const Graph* body = SubgraphOf(taken, "body");
  REQUIRE(body);
  REQUIRE(body->FindConstant("prepared"));
  CHECK(body->FindConstant("prepared")->ToVector<float>() == Floats{42});
  CHECK(Contains(ToString(report), "it is no PartNeg"));
  CHECK(Contains(ToString(report), "its input is not float32"));  // nobody knows what Unknown makes
  const Graph alone = ChainOf({"PartNeg", "Unknown"});
  CHECK(SameGraph(Partition(alone, "LibTyped", {{"ops", "PartNeg"}}, &report), alone));
  CHECK(Contains(ToString(report), "one node alone"));
}

TEST_CASE("a pass of a library changes a graph, whose constants stay shared") {
  Scoped library("partitioner_typed");
  CHECK(library->passes() == Types{"lib_bad", "lib_drop_doubles", "lib_infers"});
  Graph graph = ChainOf({"Neg", "Neg"});
  const Tensor weights = Vector({1, 2, 3});
  graph.AddConstant("W", weights);
  const Graph after = RunPass(graph, "lib_drop_doubles");
  CHECK(TypesOf(after) == Types{"Neg", "Identity"});
  CHECK(after.FindInput("X")->info.shape == graph.FindInput("X")->info.shape);
  CHECK(after.FindConstant("W")->raw_data() == weights.raw_data());
  CheckFails(
      [&] {
        RunPass(graph, "lib_drop_doubles", {{"a", "b"}});
      },
      "pass lib_drop_doubles of library libpartitioner_typed.so failed: it takes no option");
  CheckFails([&] { RunPass(graph, "lib_bad"); }, "nothing makes it");
  CheckFails([&] { RunPass(graph, "lib_drop"); }, "no pass 'lib_drop' is registered");
}

TEST_CASE("a library knows the program's operators and the types of bodies") {
  Scoped library("partitioner_typed");
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 3});
  graph.AddNode(OperatorDef("PartNeg", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  // The pass infers by the operators of the program. Symbols have names of their own there, "s12".
  const std::string told = ErrorOf([&] { RunPass(graph, "lib_infers"); }).message();
  CHECK_MESSAGE(Contains(told, "it is float32[s"), told);
  CHECK_MESSAGE(Contains(told, ", 3]"), told);
  CheckFails([&] { RunPass(ChainOf({"Unknown"}), "lib_infers"); },
             "no operator 'Unknown' is registered");
  const Graph parted = Partition(graph, "LibTyped2", {{"ops", "PartNeg"}});
  CHECK(TypesOf(parted) == Types{"LibReadsBody"});
  CHECK(SubgraphOf(parted.node(0), "body")->inputs()[0].info.shape[0] == Sym("N"));
  Executor(Compile(parted)).Run({{"X", Tensor({2, 3}, DType::kFloat32)}});
  // A pass that changes nothing leaves them as they are.
  CHECK(SameGraph(RunPass(parted, "lib_drop_doubles"), parted));
}

TEST_CASE("an operator of functions in a program gets its node, and has its graph run") {
  Graph graph = ChainOf({"PartRunsBody"});
  OperatorDef node = graph.node(0);
  graph.ReplaceNode(
      0, node.Subgraph("body", MakeSubgraph(ChainOf({"PartNeg", "PartNeg", "PartNeg"}))));
  CHECK(Executor(Compile(graph)).Run({{"X", Vector({1, 2})}}).Get("Y").ToVector<float>() ==
        Floats{-1, -2});
}

TEST_CASE("partitioners and passes go with their library, which stays while one is held") {
  {
    Scoped library("partitioner_typed");
    {
      PassList passes;
      passes.Add("theirs", FindPass("lib_drop_doubles"));
      CHECK(Contains(ErrorOf([&] { library->Unload(); }).message(), "cannot be unloaded"));
    }
  }
  CHECK(std::ranges::count(RegisteredPasses(), "lib_bad") == 0);
  CHECK_FALSE(PartitionerRegistry::Global().Has("LibTyped"));
}

TEST_CASE("wrong answers of a partitioner in C are reported, though it returns only a status") {
  static int32_t kind, set;
  static opkit_partitioner partitioner;
  static const opkit_partitioner* partitioners[] = {&partitioner};
  static opkit_library library;
  partitioner.size = sizeof partitioner;
  partitioner.name = "c_takes";
  partitioner.subgraph_op = [](const opkit_partitioner*, int32_t) { return "Subgraph"; };
  partitioner.mark = [](void*, const opkit_partition* partition) {
    return partition->take(partition, 1, kind, set);
  };
  library = {};
  library.size = sizeof library;
  library.abi_major = OPKIT_ABI_MAJOR;
  library.abi_minor = OPKIT_ABI_MINOR;
  library.num_partitioners = 1;
  library.partitioners = partitioners;
  Library loaded = Library::LoadEntry(
      [](const opkit_host*) -> const opkit_library* { return &library; }, "in_c");
  const Graph graph = ChainOf({"PartNeg", "PartNeg"});
  const auto taken = [&](int32_t with_kind, int32_t with_set) {
    kind = with_kind;
    set = with_set;
    return Partition(graph, "c_takes");
  };
  const Error error = ErrorOf([&] { taken(-1, -1); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(Contains(
      error.message(),
      "mark of partitioner c_takes of library in_c failed: it returned status 5 without "
      "a text; before, a call of the host failed: the answer puts node PartNeg 'n1' (V1) -> (Y) "
      "into the set -1; it is a number from 0 on"));
  CheckFails([&] { taken(-2, 0); },
             "the answer takes node PartNeg 'n1' (V1) -> (Y) for the kind -2; it is -1 for any "
             "subgraph, or a number from 0 on");
  CHECK(TypesOf(taken(-1, 0)) == Types{"PartNeg", "Subgraph"});
  loaded.Unload();
}

TEST_CASE("a pass edits a graph through the table in C, in one and only where it comes out right") {
  static opkit_pass pass;
  static const opkit_pass* passes[] = {&pass};
  static opkit_library library;
  pass = {};
  pass.size = sizeof pass;
  pass.name = "c_edits";
  pass.run = [](const opkit_pass*, const opkit_rewrite* rewrite) -> opkit_status {
    // Neg, Neg -> (added) Relu, Neg reads 2 W: by number, in the order in which they run.
    if (rewrite->graph->num_nodes != 2) return OPKIT_FAILED;
    const OperatorDef added("Relu", {"X"}, {"R"}), again("Sum", {"R", "C"}, {"V1"});
    const detail::AbiNode added_node(added), again_node(again);
    const detail::AbiAttributes constant(Arguments{{"C", Vector({5})}});
    const bool wrong = rewrite->num_options > 0;
    for (const opkit_status status :
         {rewrite->add_node(rewrite, 0, &added_node.node()),
          rewrite->replace_node(rewrite, 0, &again_node.node()),
          rewrite->add_constant(rewrite, "C", (*constant.data())->tensors[0]),
          wrong ? rewrite->remove_node(rewrite, 1) : OPKIT_OK})
      if (status != OPKIT_OK) return status;
    return rewrite->remove_node(rewrite, 2) == OPKIT_OUT_OF_RANGE ? OPKIT_OK : OPKIT_FAILED;
  };
  library = {};
  library.size = sizeof library;
  library.abi_major = OPKIT_ABI_MAJOR;
  library.abi_minor = OPKIT_ABI_MINOR;
  library.num_passes = 1;
  library.passes = passes;
  Library loaded = Library::LoadEntry(
      [](const opkit_host*) -> const opkit_library* { return &library; }, "in_c");
  const Graph graph = ChainOf({"Neg", "Neg"});
  const Graph after = RunPass(graph, "c_edits");
  CHECK(TypesOf(after) == Types{"Relu", "Sum", "Neg"});
  CHECK(after.FindConstant("C")->ToVector<float>() == Floats{5});
  CHECK(ErrorOf([&] {
          RunPass(graph, "c_edits", {{"wrong", ""}});
        }).code() == ErrorCode::kNotFound);
  pass.run = nullptr;
  loaded.Unload();
  CheckFails(
      [] {
        Library::LoadEntry([](const opkit_host*) -> const opkit_library* { return &library; },
                           "in_c");
      },
      "library in_c has pass 'c_edits' without run");
}

}  // namespace library_partitioners_test
