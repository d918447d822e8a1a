// Graphs saved as ONNX models are read back as the same graphs; what ONNX cannot hold is an Error.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "any_operator.hpp"
#include "graph/random_graph.hpp"
#include "made_library.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx_writer.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"
#include "support/temporary_folder.hpp"

namespace onnx_writer_test {
using namespace opkit;

namespace {

OnnxModel Back(const Graph& graph, const OnnxWriteOptions& options = {}) {
  return ParseOnnxModel(ToOnnx(graph, options), AnyOperator());
}
// A graph of one node, which reads "x" and makes "y".
Graph OneNode(OperatorDef def) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(std::move(def.Input("x").Output("y")));
  graph.AddOutput("y");
  return graph;
}
Graph WithArgument(Attribute value) {
  return OneNode(OperatorDef("Op").Arg("value", std::move(value)));
}
std::string WhatOf(const Graph& graph) {
  return ErrorOf([&] { ToOnnx(graph); }).what();
}

// y = Op(x, h, w), where h and w are values of the graph around.
Graph Branch(const std::string& made) {
  Graph branch;
  branch.AddInput("x", DType::kFloat32, {Sym("N")});
  branch.AddInput("h", DType::kFloat32, {});
  branch.AddNode(OperatorDef("Op", {"x", "h", ""}, {made}));
  branch.AddOutput(made);
  return branch;
}

// An operator of the program, of which inference knows the type.
OPERATOR_SCHEMA(OnnxWriterOwn).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();

Tensor Ones() { return Tensor::From<float>({2}, {1, 1}); }

}  // namespace

TEST_CASE("Strings, sequences and optional values keep their types and elements") {
  const auto input = [](const char* name, DType dtype, DType element, bool holds_sequence) {
    Graph::Input made{name, TensorInfo(dtype, {Dim()})};
    made.info.element = element;
    made.info.holds_sequence = holds_sequence;
    return made;
  };
  Graph graph;
  graph.AddInput("text", DType::kString, {2, Sym("N")});
  graph.AddInput(input("sequence", DType::kSequence, DType::kString, false));
  graph.AddInput(input("optional", DType::kOptional, DType::kFloat32, false));
  graph.AddInput(input("both", DType::kOptional, DType::kInt64, true));
  graph.AddConstant("words", Tensor::From<std::string>({2, 1}, {"a", std::string("\0b", 2)}));
  OperatorDef def("Op", {"text", "sequence", "optional", "both", "words"}, {"y"});
  def.Arg("tensor", Tensor::From<std::string>({1}, {"in an attribute"}));
  graph.AddNode(def);
  graph.AddOutput("y").AddOutput("sequence").AddOutput("both");
  const OnnxModel model = Back(graph);
  CHECK(SameGraph(model.graph, graph));
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    CHECK(ToString(model.graph.inputs()[i].info) == ToString(graph.inputs()[i].info));
    CHECK(model.graph.inputs()[i].info.element == graph.inputs()[i].info.element);
  }
  REQUIRE(model.output_types.size() == 3);
  CHECK(ToString(model.output_types[1]) == "sequence<string>[?]");
  CHECK(ToString(model.output_types[2]) == "optional<int64[]>[?]");
  Graph held;
  held.AddConstant("s", MakeSequence({Ones()})).AddOutput("s");
  CHECK(Contains(WhatOf(held), "constant 's': tensor sequence[1] on cpu is no TensorProto"));
}

TEST_CASE("Inputs keep their types, and symbols, unknown extents and unknown ranks") {
  Graph graph;
  graph.AddInput("all", DType::kFloat32, {Sym("N"), 3, Dim()});
  graph.AddInput("scalar", DType::kInt64, SymbolicShape(Shape{}));
  graph.AddInput("unknown", DType::kInt64, {Dim(), Dim()});
  graph.AddInput("rank", DType::kBool, SymbolicShape());
  graph.AddInput("untyped", DType::kUndefined, SymbolicShape());
  graph.AddInput("shape alone", DType::kUndefined, {Sym("N")});
  graph.AddNode(OperatorDef("Op", {"all", "", "scalar"}, {"", "y"}).Name("first"));
  graph.AddOutput("y");
  graph.AddOutput("scalar");
  const OnnxModel model = Back(graph);
  CHECK(SameGraph(model.graph, graph));
  CHECK(model.opset() == 21);
  CHECK(model.ir_version == 10);
  CHECK(model.producer == "opkit");
  CHECK(model.name == "opkit");
}

TEST_CASE("The default of an input is written as an initializer, and read again") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddInput({"w", {DType::kFloat32, {Dim()}}, Ones()});
  graph.AddNode(OperatorDef("Op", {"x", "w"}, {"y"}));
  graph.AddOutput("y");
  CHECK(SameGraph(Back(graph).graph, graph));
  OnnxOptions fixed = AnyOperator();
  fixed.fix_defaults = true;
  const Graph constant = ParseOnnxModel(ToOnnx(graph), fixed).graph;
  CHECK(constant.inputs().size() == 1);
  CHECK(constant.FindConstant("w")->ToVector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("Constants of every type are written with their bytes") {
  Graph graph;
  for (int i = 1; i < static_cast<int>(DType::kString); ++i) {
    const auto dtype = static_cast<DType>(i);
    graph.AddConstant(ToString(dtype), RandomTensor(Shape{2, 3}, dtype, 7));
    graph.AddConstant(StrCat(dtype, " scalar"), RandomTensor(Shape{}, dtype, 8));
    graph.AddConstant(StrCat(dtype, " empty"), Tensor(Shape{0, 4}, dtype));
  }
  graph.AddOutput("float32");
  CHECK(SameGraph(Back(graph).graph, graph));
}

TEST_CASE("Attributes of every type are written") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string bytes("\0\xff\n", 3);
  for (const Attribute& value : std::vector<Attribute>{
           Attribute(int64_t{-5}),
           Attribute((std::numeric_limits<int64_t>::min)()),
           Attribute(2.5f),
           Attribute(-infinity),
           Attribute("text"),
           Attribute(bytes),
           Attribute(""),
           Attribute(Ones()),
           Attribute(Ints{1, -2, 3}),
           Attribute(Ints{}),
           Attribute(Floats{0.25f, -0.f, infinity}),
           Attribute(Floats{}),
           Attribute(Strings{"a", "", bytes}),
           Attribute(Strings{}),
           Attribute(std::vector<Tensor>{Ones(), Tensor::Scalar<int64_t>(3)}),
           Attribute(std::vector<Tensor>{}),
       }) {
    CAPTURE(ToString(value));
    const Graph graph = WithArgument(value);
    CHECK(SameGraph(Back(graph).graph, graph));
  }
  const Graph nan = Back(WithArgument(std::numeric_limits<double>::quiet_NaN())).graph;
  CHECK(std::isnan(nan.node(0).args().Get<float>("value")));
}

TEST_CASE("Bools are written as integers, and doubles as float32") {
  const auto back = [](Attribute value) {
    return *Back(WithArgument(std::move(value))).graph.node(0).args().Find("value");
  };
  CHECK(back(true) == Attribute(1));
  CHECK(back(std::vector<bool>{true, false}) == Attribute(Ints{1, 0}));
  CHECK(back(0.1) == Attribute(0.1f));
  CHECK(back(std::vector<double>{0.1, 2}) == Attribute(Floats{0.1f, 2.f}));
}

// Declares an attribute of every kind for which a node may give an integer or an empty list.
OPERATOR_SCHEMA(OnnxWriterDeclares)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<float>("number", "", 1.f)
    .Arg<std::vector<float>>("numbers", "", std::vector<float>{})
    .Arg<int64_t>("count", "", int64_t{1})
    .Arg<std::vector<int64_t>>("counts", "", std::vector<int64_t>{});

TEST_CASE("An integer that an operator declares as a floating-point number is written as one") {
  const Graph graph = OneNode(OperatorDef("OnnxWriterDeclares")
                                  .Arg("number", 3)
                                  .Arg("numbers", Ints{1, 2})
                                  .Arg("count", 3)
                                  .Arg("counts", Floats{}));
  const Graph back = Back(graph).graph;
  const Arguments& args = back.node(0).args();
  CHECK(*args.Find("number") == Attribute(3.f));
  CHECK(*args.Find("numbers") == Attribute(Floats{1, 2}));
  CHECK(*args.Find("count") == Attribute(3));
  CHECK(*args.Find("counts") == Attribute(Ints{}));
  const Graph inexact =
      OneNode(OperatorDef("OnnxWriterDeclares").Arg("number", (int64_t{1} << 60) + 1));
  CHECK(Contains(WhatOf(inexact), "attribute 'number': value 1152921504606846977 is not sure"));
}

TEST_CASE("An attribute that ONNX cannot hold is an Error with the node and the reason") {
  const std::string beyond = WhatOf(WithArgument(1e39));
  CHECK(Contains(beyond, "node Op (x) -> (y): attribute 'value': its value 1e+39 is beyond"));
  CHECK(Contains(WhatOf(WithArgument(std::vector<double>{0, -1e39})), "-1e+39"));
  CHECK(ErrorOf([&] { ToOnnx(WithArgument(Tensor())); }).code() == ErrorCode::kUninitialized);

  Graph released = OneNode(OperatorDef("Op"));
  released.AddConstant("w", Tensor::Scalar(1.f)).ReleaseConstant("w");
  CHECK(
      Contains(WhatOf(released), "constant 'w': tensor float32[] on cpu (uninitialized): is read"));

  Graph controlled = OneNode(OperatorDef("Op").Name("a"));
  controlled.AddNode(OperatorDef("Op", {"x"}, {"z"}).Name("b").ControlInput("a"));
  CHECK(Contains(WhatOf(controlled), "node Op 'b' (x) -> (z): it must run after 'a'"));

  Graph rewritten = OneNode(OperatorDef("Op"));
  rewritten.AddNode(OperatorDef("Accumulate", {"y", "x"}, {"y"}));
  CHECK(Contains(WhatOf(rewritten), "node Accumulate (y, x) -> (y): it rewrites 'y'"));

  Graph unfinished;
  unfinished.AddNode(OperatorDef("Op", {"nothing"}, {"y"}));
  CHECK(ErrorOf([&] { ToOnnx(unfinished); }).code() == ErrorCode::kNotFound);

  const Graph simple = OneNode(OperatorDef("Resize").Arg("nearest_mode", "simple"));
  CHECK(Contains(WhatOf(simple), "ONNX's Resize has no nearest_mode = "));
  const auto normalization = [](int64_t spatial) {
    return OneNode(OperatorDef("BatchNormalization").Arg("spatial", spatial));
  };
  CHECK(Contains(WhatOf(normalization(0)), "ONNX's BatchNormalization has no spatial = 0"));
  CHECK(!Back(normalization(1)).graph.node(0).args().Has("spatial"));
}

TEST_CASE("Wrong options are Errors") {
  const Graph graph = OneNode(OperatorDef("Op"));
  for (const OnnxWriteOptions& options :
       {OnnxWriteOptions{.opset = 20}, OnnxWriteOptions{.opset = 29},
        OnnxWriteOptions{.domain = ""}, OnnxWriteOptions{.domain = "ai.onnx"},
        OnnxWriteOptions{.domain_versions = {{"", 20}}},
        OnnxWriteOptions{.domain_versions = {{"ai.onnx.ml", 0}}}, OnnxWriteOptions{.name = ""}})
    CHECK(ErrorOf([&] { ToOnnx(graph, options); }).code() == ErrorCode::kInvalidArgument);
  CHECK(Back(graph, {.opset = 28, .name = "mine"}).opset() == 28);
  CHECK(Back(graph, {.opset = 27, .name = "mine"}).name == "mine");
}

TEST_CASE("A type with a domain is written in it") {
  const Graph graph = OneNode(OperatorDef("com.microsoft.Gelu"));
  const OnnxModel model = Back(graph);
  CHECK(SameGraph(model.graph, graph));
  CHECK(model.opset("com.microsoft") == 1);
  CHECK(model.opset() == 21);
  CHECK(model.opset("opkit") == 0);
  const OnnxModel versioned =
      Back(graph, {.domain_versions = {{"com.microsoft", 3}, {"other", 2}}});
  CHECK(versioned.opset("com.microsoft") == 3);
  CHECK(versioned.opset("other") == 0);  // no node is of it
  const Graph trees = OneNode(OperatorDef("ai.onnx.ml.TreeEnsemble"));
  CHECK(Back(trees).opset("ai.onnx.ml") == 5);
  CHECK(Back(trees, {.domain_versions = {{"ai.onnx.ml", 3}}}).opset("ai.onnx.ml") == 3);
}

TEST_CASE("An operator of the program is written in the domain of the options") {
  const Graph graph = OneNode(OperatorDef("OnnxWriterOwn"));
  CHECK(SameGraph(Back(graph).graph, graph));
  CHECK(Back(graph).opset("opkit") == 1);
  CHECK(SameGraph(Back(graph, {.domain = "org.mine"}).graph, graph));
  CHECK(Back(graph, {.domain = "org.mine"}).opset("org.mine") == 1);
}

TEST_CASE("Random graphs read back the same") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const Graph graph = RandomGraph(seed);
    CHECK(SameGraph(Back(graph).graph, graph));
    const Graph shuffled = RandomGraph(seed, {.shuffled = true});
    const Graph back = Back(shuffled).graph;
    CHECK(SameGraph(Back(back).graph, back));
    REQUIRE(back.num_nodes() == shuffled.num_nodes());
    const GraphView view(shuffled);
    for (int i = 0; i < back.num_nodes(); ++i)
      CHECK(back.node(i) == shuffled.node(view.order()[static_cast<size_t>(i)]));
  }
}

TEST_CASE("Random graphs with attributes that ONNX lacks are Errors") {
  int refused = 0;
  for (uint64_t seed = 0; seed < 50; ++seed)
    for (const bool rewrites : {true, false}) {
      const Graph graph = RandomGraph(seed, {.rewrites = rewrites, .controls = !rewrites});
      bool holds = true;
      for (const OperatorDef& def : graph.nodes())
        holds &= def.control_inputs().empty() && def.type() != "Accumulate";
      if (holds)
        CHECK(SameGraph(Back(graph).graph, graph));
      else
        CHECK(ErrorOf([&] { ToOnnx(graph); }).code() == ErrorCode::kUnsupported);
      refused += !holds;
    }
  CHECK(refused > 50);
}

TEST_CASE("Branches read values of the outer graph by the outer name") {
  Graph graph;
  graph.AddInput("c", DType::kBool, {});
  graph.AddInput("x", DType::kFloat32, {Sym("N")});
  graph.AddNode(OperatorDef("OnnxWriterOwn", {"x"}, {"h"}));
  Graph first = Branch("made"), second = Branch("other");
  graph.AddNode(OperatorDef("If", {"c", "x", "h"}, {"y"})
                    .Arg("flag", 1)
                    .Arg("captures", Strings{"x", "h"})
                    .Subgraph("then_branch", MakeSubgraph(first))
                    .Subgraph("else_branch", MakeSubgraph(second)));
  graph.AddOutput("y");
  const Graph back = Back(graph).graph;
  CHECK(back.node(1).inputs() == Strings{"c", "x", "h"});
  CHECK(back.node(1).args() == graph.node(1).args());
  const Graph& branch = *SubgraphOf(back.node(1), "then_branch");
  CHECK(branch.FindInput("x")->info.shape == SymbolicShape{Sym("N")});
  CHECK(branch.FindInput("h")->info.dtype == DType::kFloat32);
  CHECK(branch.node(0) == first.node(0));
  CHECK(branch.outputs() == Strings{"made"});
  CHECK(SameGraph(Back(back).graph, back));

  // A pass has given the values other names.
  Graph renamed = graph;
  renamed.ReplaceNode(0, OperatorDef("OnnxWriterOwn", {"x"}, {"h2"}));
  renamed.ReplaceUses("h", "h2");
  const Graph again = Back(renamed).graph;
  CHECK(again.node(1).inputs() == Strings{"c", "x", "h2"});
  CHECK(SubgraphOf(again.node(1), "then_branch")->node(0).inputs() == Strings{"x", "h2", ""});
}

TEST_CASE("Bodies share constants with the graph around, and make no name twice") {
  Graph body;
  body.AddInput("i", DType::kInt64, {});
  body.AddInput("x", DType::kFloat32, {2});  // the name of a value around, but an input of its own
  body.AddConstant("w", Ones());             // the same as around
  body.AddConstant("k", Tensor::Scalar<float>(2));
  body.AddNode(OperatorDef("Op", {"i", "x", "w", "k"}, {"y"}));
  body.AddOutput("y");
  body.AddOutput("w");
  Graph graph = OneNode(OperatorDef("Op").Subgraph("body", MakeSubgraph(body)));
  graph.AddConstant("w", Ones());
  graph.AddConstant("k", Tensor::Scalar<float>(3));
  const std::string bytes = ToOnnx(graph);
  const Graph back = ParseOnnxModel(bytes, AnyOperator()).graph;
  const Graph& inner = *SubgraphOf(back.node(0), "body");
  REQUIRE(inner.inputs().size() == 2);
  CHECK(inner.inputs()[0].name == "i");
  CHECK(inner.inputs()[1].name == "x");
  CHECK(inner.inputs()[1].info.shape == SymbolicShape{2});
  REQUIRE(inner.constants().size() == 2);
  CHECK(inner.FindConstant("w")->storage() == back.FindConstant("w")->storage());
  REQUIRE(inner.num_nodes() == 2);
  CHECK(inner.node(0).inputs() == Strings{"i", "x", "w", "k"});
  REQUIRE(inner.FindConstant("k"));
  CHECK(inner.FindConstant("k")->data<float>()[0] == 2);
  CHECK(inner.node(1).type() == "Identity");
  CHECK(inner.node(1).inputs() == Strings{"w"});
  CHECK(inner.outputs() == Strings{inner.node(0).outputs()[0], inner.node(1).outputs()[0]});
  CHECK(inner.outputs()[0] == "y");
  CHECK(SameGraph(Back(back).graph, back));
  // In the file no name of the body is one of the graph around.
  for (const char* name : {"opkit.name.x_", "opkit.name.k_", "opkit.name.y_"})
    CHECK(Contains(bytes, name));
}

TEST_CASE("A body's values get their names back, and captures are written where there are some") {
  // As a partitioner makes them: the body has the names of the graph around it.
  const auto around = [](Graph body) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(OperatorDef("Op", {"x"}, {"t"}));
    graph.AddNode(OperatorDef("OnnxWriterOwn", {"t"}, {"y"})
                      .Name("body")
                      .Subgraph("body", MakeSubgraph(std::move(body))));
    graph.AddOutput("y");
    return graph;
  };
  Graph inner;
  inner.AddInput("t", DType::kFloat32, {2});
  inner.AddConstant("x", Ones());
  inner.AddNode(OperatorDef("Op", {"t", "x"}, {"y"}));
  inner.AddOutput("y");
  const Graph graph = around(inner);
  CHECK(SameGraph(Back(graph).graph, graph));
  const Graph nested = around(around(inner));
  CHECK(SameGraph(Back(nested).graph, nested));
  CHECK(ToOnnx(Back(nested).graph) == ToOnnx(nested));

  // A body that calls the value around it by a name that means something else there: its values
  // keep the names of the file, which mean the right ones.
  Graph renames;
  renames.AddInput("t", DType::kFloat32, {2});
  renames.AddInput("a", DType::kFloat32, {2});  // `x` around
  renames.AddNode(OperatorDef("Op", {"t", "a"}, {"x"}));
  renames.AddOutput("x");
  Graph outer = around(inner);
  outer.ReplaceNode(1, OperatorDef("OnnxWriterOwn", {"t", "x"}, {"y"})
                           .Arg("captures", Strings{"a"})
                           .Subgraph("body", MakeSubgraph(renames)));
  const Graph back = Back(outer).graph;
  const Graph& body = *SubgraphOf(back.node(1), "body");
  CHECK(back.node(1).args().Get<Strings>("captures") == Strings{"x"});
  CHECK(body.inputs()[1].name == "x");
  CHECK(body.node(0).inputs() == Strings{body.inputs()[0].name, "x"});
  CHECK(body.outputs()[0] != "x");
}

TEST_CASE("A constant of a body two graphs further in is the one of the nearest graph") {
  Graph inner;
  inner.AddConstant("w", Tensor::Scalar<float>(2));
  inner.AddNode(OperatorDef("Op", {"w"}, {"i"}));
  inner.AddOutput("i");
  Graph middle;
  middle.AddConstant("w", Tensor::Scalar<float>(2));
  middle.AddNode(OperatorDef("Op", {"w"}, {"m"}).Subgraph("body", MakeSubgraph(inner)));
  middle.AddOutput("m");
  Graph graph = OneNode(OperatorDef("Op").Subgraph("body", MakeSubgraph(middle)));
  graph.AddConstant("w", Tensor::Scalar<float>(3));
  const Graph back = Back(graph).graph;
  const Graph& read = *SubgraphOf(SubgraphOf(back.node(0), "body")->node(0), "body");
  CHECK(read.FindConstant(read.node(0).inputs()[0])->data<float>()[0] == 2);
  CHECK(SameGraph(back, graph));
}

TEST_CASE("Bodies are nested as deep as the reader takes them, and no deeper") {
  const auto nested = [](int depth) {
    Graph graph = OneNode(OperatorDef("Op"));
    for (int i = 0; i < depth; ++i)
      graph = OneNode(OperatorDef("Op").Subgraph("body", MakeSubgraph(std::move(graph))));
    return graph;
  };
  const Graph deepest = nested(kMaxOnnxDepth);
  CHECK(SameGraph(Back(deepest).graph, deepest));
  for (const int depth : {kMaxOnnxDepth + 1, 300})
    CHECK(Contains(WhatOf(nested(depth)), "its bodies are nested more than 64 deep"));
}

TEST_CASE("Bodies that do not fit their node are Errors") {
  Graph body = Branch("made");
  const auto node = [&](const Strings& captures) {
    return OneNode(OperatorDef("Op").Arg("captures", captures).Subgraph("b", MakeSubgraph(body)));
  };
  CHECK(Contains(WhatOf(node({"x", "h"})), "'captures' names 2 values, but it reads 1"));
  const Graph twice = OneNode(OperatorDef("Op").Arg("b", 1).Subgraph("b", MakeSubgraph(body)));
  CHECK(Contains(WhatOf(twice), "subgraph 'b': an attribute has that name too"));
}

// A library's operators, in the graph and in the body of an operator that no library brought.
Graph OfLibraries() {
  Graph inner;
  inner.AddInput("i", DType::kFloat32, {2});
  inner.AddNode(OperatorDef("OnnxMadeChain", {"i"}, {"t"}));
  inner.AddNode(OperatorDef("org.made.Other", {"t"}, {"o"}).Name("last"));
  inner.AddOutput("o");
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("OnnxMadeChain", {"x"}, {"a"}));
  graph.AddNode(
      OperatorDef("OnnxWriterOwn", {"a"}, {"y"}).Subgraph("body", MakeSubgraph(std::move(inner))));
  graph.AddOutput("y");
  return graph;
}

TEST_CASE("Nodes name the library of their operator, and a model without it is one Error") {
  using made_library::MadeLibrary;
  const std::string before = ToOnnx(OfLibraries());
  CHECK_FALSE(Contains(before, "opkit.library"));
  std::string bytes;
  {
    const MadeLibrary library("folder/libmade.so", nullptr, "1.2", {"OnnxMadeChain"});
    const MadeLibrary other("libother.so", nullptr, nullptr, {"org.made.Other"});
    bytes = ToOnnx(OfLibraries());
    for (const char* part : {"opkit.library", "libmade.so", "opkit.library_version", "1.2"})
      CHECK(Contains(bytes, part));
    CHECK_FALSE(Contains(bytes, "folder"));
    const Graph back = ParseOnnxModel(bytes).graph;
    CHECK(SameGraph(back, OfLibraries()));
    CHECK(ToOnnx(back) == bytes);
  }
  CHECK(ToOnnx(OfLibraries()) == before);
  const Error error = ErrorOf([&] { ParseOnnxModel(bytes); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "the graph needs operators that this program lacks: operator OnnxMadeChain of library "
        "libmade.so, version 1.2 (the node of 'a' and 1 more node); operator "
        "org.made.Other of library libother.so (node 'last'); load the library before the graph, "
        "by Library::Load or opkit's option --library");
  CHECK(ParseOnnxModel(bytes, AnyOperator()).graph.num_nodes() == 2);
  const MadeLibrary newer("libmade.so", nullptr, "2.0", {"OnnxMadeChain"});
  CHECK(Contains(ErrorOf([&] { ParseOnnxModel(bytes); }).message(),
                 "lacks: operator org.made.Other of library libother.so (node 'last')"));
}

TEST_CASE("A missing library is reported before the gaps of its operators") {
  std::string from_library = onnx_bytes::Node("OnnxMadeChain", {"x"}, {"h"}, {}, "", "opkit");
  {
    protozero::pbf_writer node(from_library);
    protozero::pbf_writer entry(node, 9);
    entry.add_string(1, "opkit.library");
    entry.add_string(2, "libmade.so");
  }
  // The second node needs the rank of what the first makes.
  const std::string bytes = onnx_bytes::Graph()
                                .Input("x", {2, 3})
                                .Add(from_library)
                                .Node("Softmax", {"h"}, {"y"})
                                .Output("y")
                                .Model(11);
  const std::string what = ErrorOf([&] { ParseOnnxModel(bytes); }).message();
  CHECK(Contains(what, "operator OnnxMadeChain of library libmade.so"));
}

TEST_CASE("A model is saved as a file, which stays as it was where that fails") {
  const TemporaryFolder folder;
  const std::string path = folder / "model.onnx";
  const Graph graph = RandomGraph(1);
  SaveOnnx(graph, path);
  CHECK(SameGraph(LoadOnnx(path, AnyOperator()), graph));
  CHECK(Contains(ErrorOf([&] { SaveOnnx(WithArgument(1e39), path); }).what(), path + ": node Op"));
  CHECK(SameGraph(LoadOnnx(path, AnyOperator()), graph));
  const Error error = ErrorOf([&] { SaveOnnx(graph, folder / "none/model.onnx"); });
  CHECK(error.code() == ErrorCode::kIo);
}

}  // namespace onnx_writer_test
