// Passes over JSON: what the text says becomes the graph, and all else is an Error that says where.
#include "opkit/interop/graph_pass.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/macros.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/registration.hpp"
#include "support/check_fails.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace graph_pass_test {
using namespace opkit;
using Json = nlohmann::ordered_json;
using Options = std::unordered_map<std::string, std::string>;

namespace {

OPERATOR_SCHEMA(GraphPassScale)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<float>("alpha", "", 1.f)
    .Arg<std::vector<int64_t>>("axes", "", std::vector<int64_t>());
OPERATOR_SCHEMA(GraphPassSplit).NumInputs(1).NumOutputs(2);

// X -> Scale 'first' -> A -> Split (no name) -> B, C; Anything 'last' reads C, nothing, W -> Y.
Graph Whole() {
  Graph body;
  body.AddInput("x", DType::kFloat32, {2});
  body.AddOutput("x");
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 2});
  graph.AddConstant("W", Tensor::Scalar(2.f));
  graph.AddNode(OperatorDef("GraphPassScale", {"X"}, {"A"})
                    .Name("first")
                    .Arg("alpha", 0.1)
                    .Arg("axes", Ints{1, 2}));
  graph.AddNode(OperatorDef("GraphPassSplit", {"A"}, {"B", "C"}));
  graph.AddNode(OperatorDef("Anything", {"C", "", "W"}, {"", "Y"})
                    .Name("last \"of all\"")
                    .ControlInput("first")
                    .Arg("word", "text")
                    .Arg("words", Strings{"a", "b, c"})
                    .Arg("table", Tensor::From<float>({2}, {1, 2}))
                    .Subgraph("body", MakeSubgraph(std::move(body)))
                    .Device(DeviceType::kCPUStream, 1)
                    .Backends("mine"));
  graph.AddOutput("Y");
  graph.AddOutput("B");
  return graph;
}
std::string TextOf(const Graph& graph) {
  const GraphView view(graph);
  return WriteSymbolJson(view, InferGraph(view, {}, UnknownOperators::kAllowed)).text;
}
using Change = std::function<void(Json&)>;
Graph After(const Graph& graph, const Change& change) {
  Json json = Json::parse(TextOf(graph));
  change(json);
  return ReadSymbolJson(graph, json.dump());
}
// X -> Neg 'n0' -> Neg 'n1' -> …, each value named after its node, and all are outputs.
Graph Chain(int length) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2});
  for (int i = 0; i < length; ++i) {
    const std::string name = StrCat("n", i);
    graph.AddNode(OperatorDef("Neg", {i == 0 ? "X" : StrCat("n", i - 1)}, {name}).Name(name));
    graph.AddOutput(name);
  }
  return graph;
}

// The passes, as MXNet's authors write them.
ReturnValue Halve(const std::string& in_graph, const std::string** out_graph,
                  const Options& options) {
  if (options.count("fail")) {
    OPKIT_ERROR_MSG << "told to fail";
    return FAIL;
  }
  if (options.count("same")) {
    *out_graph = options.at("same") == "given" ? &in_graph : nullptr;
    return SUCCESS;
  }
  Json json = Json::parse(in_graph);
  for (Json& node : json["nodes"])
    if (node["op"] == "GraphPassScale") node["attrs"]["alpha"] = options.at("alpha");
  if (options.count("twice")) json["nodes"].back()["op"] = "GraphPassScale";
  *out_graph = new std::string(options.count("cut") ? in_graph.substr(0, 20) : json.dump());
  return SUCCESS;
}
REGISTER_PASS(graph_pass_halve).setBody(JsonGraphPass(Halve));

}  // namespace

TEST_CASE("an unchanged text gives the same graph, with the data that the text lacks") {
  for (const Graph& graph : {Whole(), Chain(3), Graph()})
    CHECK(SameGraph(ReadSymbolJson(graph, TextOf(graph)), graph));
}

TEST_CASE("nodes are changed, added and left out") {
  const Graph changed = After(Whole(), [](Json& json) {
    Json& first = json["nodes"][2];
    CHECK(first["attrs"] == Json({{"alpha", "0.1"}, {"axes", "[1, 2]"}}));
    first["attrs"] = {{"alpha", "0.25"}, {"axes", "(3,)"}, {"note", "7"}};
    json["nodes"][4]["attrs"].erase("word");
    json["nodes"][4].erase("control_inputs");
  });
  const Arguments& args = changed.node(0).args();
  CHECK(args.Get<float>("alpha") == 0.25f);
  CHECK(args.Get<Ints>("axes") == Ints{3});
  CHECK(args.Get<std::string>("note") == "7");  // the operator does not declare it
  CHECK(changed.node(2).args().Names() == Strings{"words", "table"});
  CHECK(changed.node(2).control_inputs().empty());
  CHECK(changed.node(2).inputs() == Strings{"C", "", "W"});

  const Graph added = After(Whole(), [](Json& json) {
    json["nodes"].push_back({{"op", "GraphPassSplit"}, {"name", "added"}, {"inputs", {{0, 0, 0}}}});
    json["nodes"].push_back({{"op", "Two"},
                             {"name", "A"},
                             {"inputs", {{5, 1, 0}, {1, 0}}},
                             {"dtypes", {"float32", "float32"}}});
    json["heads"][1] = {6, 1, 0};
  });
  REQUIRE(added.num_nodes() == 5);
  CHECK(added.node(3) == OperatorDef("GraphPassSplit", {"X"}, {"added", "added_1"}).Name("added"));
  CHECK(added.node(4) == OperatorDef("Two", {"added_1", "W"}, {"A_1", "B"}).Name("A"));
  CHECK(added.node(1).outputs() == Strings{"B_1", "C"});  // its old name is the new output's
  CHECK(added.outputs() == Strings{"Y", "B"});

  // a node that reads a value without a reader so far
  const Graph reads = After(Whole(), [](Json& json) {
    json["nodes"].push_back({{"op", "Two"}, {"name", "B"}, {"inputs", {{4, 0, 0}, {3, 0, 0}}}});
    json["heads"][1] = {5, 0, 0};
  });
  CHECK(reads.node(2).outputs() == Strings{"last \"of all\"", "Y"});
  CHECK(reads.node(3) == OperatorDef("Two", {"last \"of all\"", "B_2"}, {"B"}).Name("B"));
}

TEST_CASE("outputs of the graph keep their names when another node makes them") {
  // The last node goes, and its output is what the one before makes, which is returned too.
  const Graph shorter = After(Chain(2), [](Json& json) {
    json["nodes"].erase(2);
    json["heads"] = {{1, 0, 0}, {1, 0, 0}};
  });
  REQUIRE(shorter.num_nodes() == 2);
  CHECK(shorter.node(1) == OperatorDef("Identity", {"n0"}, {"n1"}));
  // The first output is an input now, and the second takes the name of the removed node.
  const Graph moved = After(Chain(3), [](Json& json) {
    json["heads"] = {{0, 0, 0}, {1, 0, 0}, {3, 0, 0}};
  });
  CHECK(moved.outputs() == Strings{"n0", "n1", "n2"});
  CHECK(moved.node(moved.Producer("n0")).type() == "Identity");
  CHECK(moved.node(moved.Producer("n0")).inputs() == Strings{"X"});
  CHECK(moved.node(moved.Producer("n1")).name() == "n0");
  const Graph swapped = After(Chain(2), [](Json& json) { json["heads"] = {{2, 0, 0}, {1, 0, 0}}; });
  Check(swapped, UnknownOperators::kAllowed);
  CHECK(swapped.outputs() == Strings{"n0", "n1"});
  const OperatorDef& first = swapped.node(swapped.Producer("n0"));
  CHECK(first.type() == "Identity");
  CHECK(swapped.node(swapped.Producer(first.inputs()[0])).name() == "n1");
  CHECK(swapped.node(swapped.Producer("n1")).name() == "n0");
}

TEST_CASE("tensors that a pass makes become constants, new or in place of old ones") {
  using Constants = std::vector<std::pair<std::string, Tensor>>;
  const auto after = [](const Change& change, const Constants& constants) {
    const Graph graph = Whole();
    Json json = Json::parse(TextOf(graph));
    change(json);
    return ReadSymbolJson(graph, json.dump(), constants);
  };
  const auto adds = [](const std::string& name) {
    return [name](Json& json) {
      json["nodes"].push_back({{"op", "null"},
                               {"name", name},
                               {"attrs", {{"isArg", "True"}, {"argName", name}}},
                               {"inputs", Json::array()}});
      json["nodes"].push_back(json["nodes"][4]);
      json["nodes"].erase(4);  // the last node is behind the new constant now
      json["nodes"][5]["inputs"].push_back({4, 0, 0});
      json["nodes"][5]["attrs"]["__ext_extra_inputs__"] = "1";
      json["heads"][0] = {5, 1, 0};
    };
  };
  const Tensor one = Tensor::Scalar(1.f), two = Tensor::Scalar(2.f);
  // The node leaves out an input, which must stay where it is, before the added one.
  const Graph added = after(adds("V"), {{"V", two}, {"unused", two}, {"V", one}});
  Check(added, UnknownOperators::kAllowed);
  REQUIRE(added.constants().size() == 2);
  CHECK(added.inputs().size() == 1);
  REQUIRE(added.FindConstant("V"));
  CHECK(added.FindConstant("V")->raw_data() == one.raw_data());
  const OperatorDef& reader = added.node(2);
  CHECK(reader.inputs() == Strings{"C", "", "W", "V"});
  CHECK(reader.args().Get<std::string>("__ext_extra_inputs__") == "1");
  CHECK(reader.args().Find("isArg") == nullptr);
  CHECK(reader.args().Find("argName") == nullptr);
  CHECK(GraphOf(*reader.subgraphs()[0].graph)->inputs().size() == 1);

  // "A" is a value of the graph, but no node.
  const Graph renamed = after(adds("A"), {{"A", one}});
  Check(renamed, UnknownOperators::kAllowed);
  CHECK(renamed.node(2).inputs() == Strings{"C", "", "W", "A_1"});
  CHECK(renamed.FindConstant("A_1"));

  // A node of the graph becomes a constant.
  const Graph folded = after(
      [](Json& json) {
        json["nodes"][2] = {{"op", "null"}, {"name", "first"}, {"inputs", Json::array()}};
        json["nodes"][4].erase("control_inputs");
      },
      {{"first", one}});
  Check(folded, UnknownOperators::kAllowed);
  CHECK(folded.num_nodes() == 2);
  CHECK(folded.node(0).inputs() == Strings{"first"});

  const Graph replaced = after([](Json&) {}, {{"W", one}});
  CHECK(replaced.FindConstant("W")->raw_data() == one.raw_data());
  CHECK(replaced.constants().size() == 1);

  CheckFails([&] { after(adds("V"), {}); }, "a pass cannot add inputs");
  CheckFails(
      [&] {
        after([](Json&) {}, {{"X", one}});
      },
      "the pass made a tensor for 'X', an input of the graph");
  CheckFails([&] { after(adds("V"), {{"V", Tensor()}}); }, "made for 'V' has no data");
}

TEST_CASE("a new node has the outputs that the text reads") {
  const Graph graph = After(Chain(2), [](Json& json) {
    json["nodes"].push_back({{"op", "Unknown"}, {"name", "u"}, {"inputs", {{0, 0, 0}}}});
    json["heads"][1] = {3, 2, 0};
  });
  CHECK(graph.node(2).outputs().size() == 3);
  CHECK(graph.node(2).outputs()[2] == "n1");
  CHECK(Contains(ErrorOf([] {
                   After(Chain(2), [](Json& json) { json["heads"][1] = {1, 1 << 20, 0}; });
                 }).message(),
                 "there is no output 1048576 yet"));
}

TEST_CASE("a registered pass in MXNet's spelling runs, and its answer is checked whole") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("GraphPassScale", {"X"}, {"A"}).Arg("alpha", 0.5));
  graph.AddNode(OperatorDef("Anything", {"A", "X"}, {"Y"}));
  graph.AddOutput("Y");
  const Graph after = RunPass(graph, "graph_pass_halve", {{"alpha", "0.125"}});
  CHECK(after.node(0).args().Get<double>("alpha") == 0.125);
  CHECK(SameGraph(RunPass(graph, "graph_pass_halve", {{"same", "given"}}), graph));
  CHECK(SameGraph(RunPass(graph, "graph_pass_halve", {{"same", "none"}}), graph));
  CheckFails(
      [&] {
        RunPass(graph, "graph_pass_halve", {{"fail", ""}});
      },
      "the pass over JSON returned FAIL: told to fail");
  CheckFails(
      [&] {
        RunPass(graph, "graph_pass_halve", {{"alpha", "much"}});
      },
      "nodes[1].attrs.alpha: \"much\" does not read as float");
  CheckFails(
      [&] {
        RunPass(graph, "graph_pass_halve", {{"alpha", "1"}, {"cut", ""}});
      },
      "the document is not JSON");
  const Error wrong = ErrorOf([&] {
    RunPass(graph, "graph_pass_halve", {{"alpha", "1"}, {"twice", ""}});
  });
  CHECK(Contains(wrong.what(), "GraphPassScale (A, X) -> (Y)"));
  CHECK(Contains(wrong.what(), "graph_pass_halve"));
}

TEST_CASE("mistakes in a text are reported with their place") {
  const auto wrong = [](const Change& change) {
    return ErrorOf([&] { After(Whole(), change); }).message();
  };
  using J = Json;
  const std::pair<Change, const char*> cases[] = {
      {[](J& j) { j = J::array(); }, "the document: expected an object, found array"},
      {[](J& j) { j.erase("nodes"); }, "the document: needs the member 'nodes'"},
      {[](J& j) { j.erase("heads"); }, "the document: needs the member 'heads'"},
      {[](J& j) { j["node"] = 1; }, "has no member 'node' (did you mean 'nodes'?"},
      {[](J& j) { j["nodes"] = 3; }, "nodes: expected an array, found number"},
      {[](J& j) { j["nodes"][2] = 3; }, "nodes[2]: expected an object, found number"},
      {[](J& j) { j["nodes"][2].erase("op"); }, "nodes[2]: needs the member 'op'"},
      {[](J& j) { j["nodes"][2]["name"] = 1; }, "nodes[2].name: expected a string"},
      {[](J& j) { j["nodes"][2]["subgraphs"] = J::array(); },
       "nodes[2]: has no member 'subgraphs'"},
      {[](J& j) { j["nodes"][3]["name"] = "first"; },
       "nodes[3].name: two nodes are called 'first'"},
      {[](J& j) { j["nodes"][0]["name"] = "V"; },
       "nodes[0].name: the graph has no input or constant 'V'"},
      {[](J& j) { j["nodes"][2]["inputs"][0] = 0; }, "nodes[2].inputs[0]: expected [node, output"},
      {[](J& j) {
         j["nodes"][2]["inputs"][0] = {0, 0, 0, 0};
       },
       "expected [node, output, version]"},
      {[](J& j) { j["nodes"][2]["inputs"][0][0] = 2; },
       "nodes[2].inputs[0][0]: there is no node 2 yet; there are 2"},
      {[](J& j) { j["nodes"][2]["inputs"][0][0] = -1; }, "there is no node -1 yet"},
      {[](J& j) { j["nodes"][2]["inputs"][0][0] = 0.5; }, "expected an integer"},
      {[](J& j) { j["nodes"][4]["inputs"][0][1] = 2; },
       "nodes[4].inputs[0][1]: there is no output 2 yet; there are 2"},
      {[](J& j) { j["nodes"][4]["inputs"].erase(0); },
       "nodes[4].inputs: the node read 2 values and left out 1 of its inputs; now it reads 1"},
      {[](J& j) { j["nodes"][2]["attrs"]["alpha"] = 1; }, "attrs.alpha: expected a string"},
      {[](J& j) { j["nodes"][2]["attrs"]["axes"] = "[1, x]"; },
       "nodes[2].attrs.axes: \"[1, x]\" does not read as ints"},
      {[](J& j) { j["nodes"][4]["attrs"]["table"] = "0"; }, "\"0\" does not read as tensor"},
      {[](J& j) { j["heads"].erase(0); }, "heads: expected an array of 2 elements"},
      {[](J& j) {
         j["heads"][0] = {9, 0, 0};
       },
       "heads[0][0]: there is no node 9"}};
  for (const auto& [change, text] : cases) {
    const std::string message = wrong(change);
    CAPTURE(message);
    CHECK(Contains(message, text));
  }
  Graph passes_on = Chain(1);
  passes_on.AddOutput("X");
  CHECK(Contains(ErrorOf([&] {
                   After(passes_on, [](J& j) { j["heads"][1] = {1, 0, 0}; });
                 }).message(),
                 "heads[1]: output 'X' is an input or a constant of the graph"));
}

TEST_CASE("graphs that the text cannot express are refused") {
  Graph rewrites;
  rewrites.AddInput("X", DType::kFloat32, {2});
  rewrites.AddNode(OperatorDef("Accumulate", {"X"}, {"X"}));
  rewrites.AddOutput("X");
  Graph twins;
  twins.AddInput("X", DType::kFloat32, {2});
  twins.AddNode(OperatorDef("Neg", {"X"}, {"A"}).Name("n"));
  twins.AddNode(OperatorDef("Neg", {"A"}, {"B"}).Name("n"));
  twins.AddOutput("B");
  for (const auto& [graph, text] :
       {std::pair<const Graph&, const char*>(rewrites, "Accumulate (X) -> (X) rewrites a value"),
        std::pair<const Graph&, const char*>(twins, "two nodes are called 'n'")}) {
    const Error error = ErrorOf([&, &graph = graph] { ReadSymbolJson(graph, TextOf(graph)); });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.message(), text));
  }
}

TEST_CASE("a text that was cut or changed is read whole or refused") {
  const Graph graph = Whole();
  const std::string whole = TextOf(graph);
  const std::string pieces = "[]{},:0123\"-nul";
  int read = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    std::string text = whole;
    for (uint64_t changes = 1 + random.Next() % 2; changes > 0; --changes)
      text[random.Next() % text.size()] = pieces[random.Next() % pieces.size()];
    try {
      const Graph after = ReadSymbolJson(graph, text);
      CHECK(after.outputs() == graph.outputs());
      ++read;
    } catch (const Error& error) {
      CHECK(error.what()[0] != '\0');
      ++refused;
    }
  }
  CHECK(read > 50);
  CHECK(refused > 500);
}

}  // namespace graph_pass_test
