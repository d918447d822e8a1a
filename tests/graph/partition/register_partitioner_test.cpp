// REGISTER_PARTITIONER with MXNet's signatures as they stand, what they are given and what their
// answers may not be; and the registry.
#include "opkit/graph/partition/register_partitioner.hpp"

#include <unordered_map>

#include "graph/partition/partition_graphs.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/partition.hpp"
#include "support/partition_spellings.hpp"
#include "support/tensors.hpp"

namespace register_partitioner_test {
using namespace partition_graphs;

namespace mxnet {

std::string last_json, last_options, last_args;  // what the functions were given

// The signatures of the source, word for word.
ReturnValue mySupportedOps(std::string json, const int num_ids, int* ids,
                           std::unordered_map<std::string, std::string>& options) {
  last_json = json;
  last_options = options.count("mode") ? options["mode"] : "none";
  // Finds "op": "…" of each node, in order.
  size_t at = 0;
  for (int i = 0; i < num_ids; ++i) {
    at = json.find("\"op\": \"", at) + 7;
    const std::string op = json.substr(at, json.find('"', at) - at);
    if (op == "Relu" || op == "Scale") ids[i] = -1;
  }
  if (last_options == "fail") {
    OPKIT_ERROR_MSG << "the mode is " << options["mode"];
    return FAIL;
  }
  return SUCCESS;
}
ReturnValue acceptSubgraph(std::string json, int subgraph_id, bool* accept,
                           std::unordered_map<std::string, std::string>& options,
                           std::unordered_map<std::string, std::string>& attrs,
                           std::map<std::string, OpTensor>& args,
                           std::map<std::string, OpTensor>& aux) {
  *accept = !(options.count("reject") && options["reject"] == std::to_string(subgraph_id));
  attrs["note"] = "subgraph " + std::to_string(subgraph_id);
  for (const auto& arg : args)
    last_args += arg.first + " " + std::to_string(arg.second.size()) + " " +
                 std::to_string(static_cast<int>(arg.second.data<float>()[0])) + "; ";
  return json.empty() || !aux.empty() ? FAIL : SUCCESS;
}
REGISTER_PARTITIONER(myProp)
    .setSupportedOps(mySupportedOps)
    .setSubgraphOp("RunBody")
    .setAcceptSubgraph(acceptSubgraph);

ReturnValue lies(std::string, std::vector<int>& ids,
                 std::unordered_map<std::string, std::string>& options) {
  if (options.count("kind"))
    ids.back() = -3;
  else
    ids.push_back(-1);
  return SUCCESS;
}
REGISTER_PARTITIONER(lies).setSupportedOps(lies).setSubgraphOp("RunBody");
int returnsSeven(const std::string&, std::vector<int>*, const std::map<std::string, std::string>&) {
  return 7;
}
REGISTER_PARTITIONER(returns_seven).setSupportedOps(returnsSeven).setSubgraphOp("RunBody");

ReturnValue acceptNone(std::string, int, bool* accept,
                       std::unordered_map<std::string, std::string>&) {
  *accept = false;
  return SUCCESS;
}
REGISTER_PARTITIONER(accepts_none)
    .setSupportedOps(mySupportedOps)
    .setSubgraphOp("RunBody")
    .setReviewSubgraph(acceptNone);

void takeAll(const PartitionView& view, PartitionAnswer& answer) {
  for (const PartitionNode& node : view.nodes()) answer.Take(node, node.op() == "Relu" ? 1 : 0);
}
REGISTER_PARTITIONER(two_operators)
    .setSupportedOps(takeAll)
    .setSubgraphOp("RunBody")
    .setSubgraphOp("RunRelus", 1);
OPERATOR_SCHEMA(RunRelus).NumInputs(1).NumOutputs(1).NeedsSubgraph();

void reviewByOptions(SubgraphReview& review, const PartitionArguments& options) {
  for (const auto& [name, value] : options) review.SetAttribute(name, value);
  if (options.empty()) review.Reject("no option says what to do");
}
REGISTER_PARTITIONER(reads_options)
    .setSupportedOps(takeAll)
    .setSubgraphOp("RunBody")
    .setAcceptSubgraph(reviewByOptions);

std::string last_subgraph;
ReturnValue takeScales(std::string json, std::vector<int>& ids,
                       std::unordered_map<std::string, std::string>&) {
  size_t at = 0;
  for (int& id : ids) {
    at = json.find("\"op\": \"", at) + 7;
    if (json.compare(at, 5, "Scale") == 0) id = -1;
  }
  return SUCCESS;
}
ReturnValue giveTexts(std::string json, int, bool* accept,
                      std::unordered_map<std::string, std::string>& options,
                      std::unordered_map<std::string, std::string>& attrs) {
  last_subgraph = json;
  *accept = true;
  attrs = {{"factor", "0.1"}, {"axes", "[0, -1]"}, {"fast", "True"}, {"note", "12"}};
  if (options.count("count")) attrs["count"] = options["count"];
  return SUCCESS;
}
OPERATOR_SCHEMA(Typed)
    .NumInputs(1)
    .NumOutputs(1)
    .NeedsSubgraph()
    .Arg<int>("count", "", 0)
    .Arg<float>("factor", "", 1.0f)
    .Arg<std::vector<int64_t>>("axes", "")
    .Arg<std::vector<int64_t>>("isArg", "")
    .Arg<bool>("fast", "", false)
    .Arg<std::string>("note", "", "");
REGISTER_PARTITIONER(types_texts)
    .setSupportedOps(takeScales)
    .setSubgraphOp("Typed")
    .setAcceptSubgraph(giveTexts);

REGISTER_PARTITION_SPELLINGS(spelling, "RunBody");
REGISTER_PARTITIONER(takes_no_body).setSupportedOps(takeAll).setSubgraphOp("Relu");

REGISTER_PARTITIONER(no_function).setSubgraphOp("RunBody");
REGISTER_PARTITIONER(two_functions).setSupportedOps(takeAll).setSupportedOps(takeAll);
REGISTER_PARTITIONER(registered_twice).setSupportedOps(takeAll);
REGISTER_PARTITIONER(registered_twice).setSupportedOps(takeAll);

}  // namespace mxnet

namespace {

Graph Sample() {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Tensor::From<float>({2, 2}, {7, 1, 2, 3}));
  g.AddNode(Scale("X", "A", 2).Name("s"));
  g.AddNode(Relu("A", "B"));
  g.AddNode(OperatorDef("MatMul").Input("B").Input("B").Output("C").Name("m").ControlInput("s"));
  g.AddNode(Relu("W", "D"));
  g.AddNode(Relu("C", "E"));
  return g.AddOutput("D").AddOutput("E");
}

}  // namespace

TEST_CASE("the original's functions get the graph as its JSON, with types, and answer ids") {
  const Graph graph = Sample();
  mxnet::last_args.clear();
  const Graph after = Partition(graph, "myProp", {{"mode", "fast"}, {"reject", "2"}});
  CHECK(mxnet::last_options == "fast");
  CHECK(mxnet::last_json ==
        "{\n"
        "  \"nodes\": [\n"
        "    {\"op\": \"null\", \"name\": \"X\", \"attrs\": {\"isArg\": \"True\", \"isAux\": "
        "\"False\"}, \"inputs\": [], \"dtypes\": [\"float32\"], \"shapes\": [[4, 4]]},\n"
        "    {\"op\": \"null\", \"name\": \"W\", \"attrs\": {\"isArg\": \"True\", \"isAux\": "
        "\"False\", \"constant\": \"True\"}, \"inputs\": [], \"dtypes\": [\"float32\"], "
        "\"shapes\": [[2, 2]]},\n"
        "    {\"op\": \"Scale\", \"name\": \"s\", \"attrs\": {\"scale\": \"2\"}, \"inputs\": "
        "[[0, 0, 0]], \"dtypes\": [\"float32\"], \"shapes\": [[4, 4]]},\n"
        "    {\"op\": \"Relu\", \"name\": \"Relu_3\", \"attrs\": {}, \"inputs\": [[2, 0, 0]], "
        "\"dtypes\": [\"float32\"], \"shapes\": [[4, 4]]},\n"
        "    {\"op\": \"MatMul\", \"name\": \"m\", \"attrs\": {}, \"inputs\": [[3, 0, 0], [3, 0, "
        "0]], \"control_inputs\": [\"s\"], \"dtypes\": [\"float32\"], \"shapes\": [[4, 4]]},\n"
        "    {\"op\": \"Relu\", \"name\": \"Relu_5\", \"attrs\": {}, \"inputs\": [[1, 0, 0]], "
        "\"dtypes\": [\"float32\"], \"shapes\": [[2, 2]]},\n"
        "    {\"op\": \"Relu\", \"name\": \"Relu_6\", \"attrs\": {}, \"inputs\": [[4, 0, 0]], "
        "\"dtypes\": [\"float32\"], \"shapes\": [[4, 4]]}\n"
        "  ],\n"
        "  \"arg_nodes\": [0, 1],\n"
        "  \"heads\": [[5, 0, 0], [6, 0, 0]]\n"
        "}\n");
  CHECK(mxnet::last_args == "W 4 7; ");
  CHECK(Ops(after) == "RunBody MatMul RunBody Relu");
  CHECK(after.node(0).args().Get<std::string>("note") == "subgraph 0");
  CHECK(after.node(2).args().Get<std::string>("note") == "subgraph 1");
  CheckSameResults(graph, after, 1);
}

TEST_CASE("attributes in the original's JSON are the text that operators read") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(OperatorDef("Unknown", {"X"}, {"Y"})
                    .Arg("word", "linear")
                    .Arg("words", std::vector<std::string>{"a", "b"})
                    .Arg("exact", 0.1234567890123)
                    .Arg("narrow", 0.1f));
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view, {}, UnknownOperators::kAllowed);
  CHECK(Contains(WriteSymbolJson(view, types).text,
                 R"("attrs": {"word": "linear", "words": "[\"a\", \"b\"]", )"
                 R"("exact": "0.1234567890123", "narrow": "0.1"})"));
}

TEST_CASE("FAIL, ids that mean nothing and another number of ids are Errors with their reason") {
  const Graph graph = Sample();
  const auto error = [&](const char* name, PartitionArguments options) {
    return std::string(ErrorOf([&] { Partition(graph, name, options); }).what());
  };
  CHECK(Contains(error("myProp", {{"mode", "fail"}}),
                 "setSupportedOps' function returned FAIL: the mode is fail\n  in partitioner "
                 "'myProp'"));
  CHECK(Contains(error("lies", {{"kind", "-3"}}), "for the kind -3"));
  CHECK(Contains(error("lies", {}), "answered 8 ids for 7 nodes"));
  CHECK(Contains(error("returns_seven", {}),
                 "setSupportedOps' function failed: it returned 7; 1 is SUCCESS and 0 is FAIL"));
  CHECK(SameGraph(Partition(graph, "accepts_none"), graph));
}

TEST_CASE("a partitioner without a function that gets options has only the common options") {
  const Graph graph = Sample();
  const auto refusal = [&](PartitionArguments options) {
    return std::string(ErrorOf([&] { Partition(graph, "two_operators", options); }).what());
  };
  CHECK(Contains(refusal({{"minsize", "2"}}),
                 "it has no option 'minsize' (did you mean 'min_size'?"));
  CHECK(Contains(refusal({{"mode", "fast"}}), "in partitioner 'two_operators'"));
  CHECK_NOTHROW(Partition(graph, "two_operators", {{"min_size", "2"}}));
}

TEST_CASE("a typed review reads the options where it wants them") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "A"));
  graph.AddOutput("A");
  const Graph after = Partition(graph, "reads_options", {{"note", "here"}});
  CHECK(after.node(0).args().Get<std::string>("note") == "here");
  PartitionReport report;
  CHECK(SameGraph(Partition(graph, "reads_options", {}, &report), graph));
  CHECK(Contains(ToString(report), "no option says what to do"));
}

TEST_CASE(
    "a subgraph's inputs are marked where the model gives them, in the JSON and on the node") {
  Graph graph = WithInputs({"X", "Z"});
  graph.AddNode(Scale("X", "A", 2));
  graph.AddNode(OperatorDef("MatMul", {"A", "Z"}, {"B"}));
  graph.AddNode(Scale("B", "C", 2));
  graph.AddOutput("C");
  const Graph after = Partition(graph, "types_texts");
  CHECK(Ops(after) == "Typed MatMul Typed");
  CHECK(after.node(0).args().Get<std::vector<int64_t>>("isArg") == std::vector<int64_t>{1});
  CHECK(after.node(2).args().Get<std::vector<int64_t>>("isArg") == std::vector<int64_t>{0});
  CHECK_FALSE(after.node(0).args().Has("isAux"));  // its schema does not declare it
  CHECK(Contains(mxnet::last_subgraph, R"("name": "B", "attrs": {"isArg": "False", "isAux": )"));
}

TEST_CASE("attributes that are given as text get the types that the operator declares") {
  const Graph after = Partition(Sample(), "types_texts", {{"count", "3"}});
  const Arguments& args = after.node(0).args();
  CHECK(args.Get<int64_t>("count") == 3);
  CHECK(args.Get<double>("factor") == 0.1);
  CHECK(args.Get<std::vector<int64_t>>("axes") == std::vector<int64_t>{0, -1});
  CHECK(args.Get<bool>("fast"));
  CHECK(args.Get<std::string>("note") == "12");
  const Error error = ErrorOf([] { Partition(Sample(), "types_texts", {{"count", "three"}}); });
  CHECK(Contains(error.what(), "argument 'count' of Typed is string"));
  CHECK(Contains(error.what(), "expected int"));
}

TEST_CASE("every signature of MXNet's versions, with values, references and pointers, is called") {
  const auto note = [&](const char* name) {
    const Graph parted = Partition(Sample(), name, {{"op", "Relu"}});
    CHECK(Ops(parted) == "Scale RunBody MatMul RunBody RunBody");
    const Arguments& last = parted.node(3).args();
    return last.Has("note") ? last.Get<std::string>("note") : "none";
  };
  CHECK(note("spelling_release") == "1 of release, constants: 1");
  CHECK(note("spelling_count") == "1 by reference, constants: 1");
  CHECK(note("spelling_bools") == "none");
  CHECK(note("spelling_value") == "1 with attributes");
  CHECK(note("spelling_pointer") == "1 by pointer, constants: 1");
  CHECK(SameGraph(Partition(Sample(), "spelling_rejects", {{"op", "Relu"}}), Sample()));
}

TEST_CASE("the ids of int* are flags: 1 or -1 takes a node, and other numbers are refused") {
  const auto ops = [](const char* id) {
    return Ops(Partition(Sample(), "spelling_count", {{"op", "Relu"}, {"id", id}}));
  };
  CHECK(ops("-1") == ops("1"));
  CHECK(ops("0") == Ops(Sample()));
  CHECK(ops("-2") == Ops(Sample()));
  for (const char* id : {"2", "-3"}) {
    const Error error = ErrorOf([&] { ops(id); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_MESSAGE(Contains(error.what(), StrCat("answered ", id,
                                                " for node 3 in int* ids, where 1 "
                                                "or -1 takes a node and 0 or -2 leaves it; a "
                                                "function that takes nodes of several kinds has "
                                                "std::vector<int>* ids")),
                  error.what());
  }
}

TEST_CASE("an operator that runs no subgraph may not take the place of one") {
  const Graph graph = Sample();
  const Error error = ErrorOf([&] { Partition(graph, "takes_no_body"); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(
      Contains(error.what(), "the operator 'Relu' takes the place of a subgraph but does not run"));
}

TEST_CASE("kinds have operators of their own") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "A"));
  graph.AddNode(Scale("A", "B", 2));
  graph.AddOutput("B");
  CHECK(Ops(Partition(graph, "two_operators")) == "RunRelus RunBody");
}

TEST_CASE("a registration that is wrong is reported where it is used") {
  const auto error = [](const char* name) {
    return ErrorOf([&] { PartitionerRegistry::Global().Get(name); });
  };
  CHECK(Contains(error("no_function").what(), "call setSupportedOps or setCreateSelector"));
  CHECK(Contains(error("two_functions").what(), "setSupportedOps is called twice"));
  CHECK(error("registered_twice").code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(error("registered_twice").what(), "rename one of them"));
  const auto names = PartitionerRegistry::Global().Names();
  CHECK(std::find(names.begin(), names.end(), "myProp") != names.end());
}

TEST_CASE("a partitioner can be a class of its own, and be taken away again") {
  class Firsts final : public Partitioner {
   public:
    const std::string& name() const override { return name_; }
    std::string SubgraphOperator(int) const override { return "RunBody"; }
    std::unique_ptr<PartitionWork> Begin(const PartitionView&,
                                         const PartitionArguments&) const override {
      class Work final : public PartitionWork {
        void Mark(PartitionAnswer& answer) override { answer.Take(0); }
      };
      return std::make_unique<Work>();
    }

   private:
    const std::string name_ = "firsts";
  };
  const auto firsts = opkit::detail::MakeIntrusive<Firsts>();
  PartitionerRegistry& registry = PartitionerRegistry::Global();
  CHECK(RegisterPartitioner(firsts, "here", 1));
  // The same line: the registry keeps the first one.
  CHECK_FALSE(RegisterPartitioner(opkit::detail::MakeIntrusive<Firsts>(), "here", 1));
  CHECK(Ops(Partition(Sample(), "firsts")) == "RunBody Relu MatMul Relu Relu");
  CHECK(registry.Unregister(*firsts));
  CHECK_FALSE(registry.Unregister(*firsts));
  CHECK(ErrorOf([] { Partition(Sample(), "firsts"); }).code() == ErrorCode::kNotFound);
}

}  // namespace register_partitioner_test
