// ONNX models become graphs: inputs, constants, attributes, names, and the operators that answer.
#include <doctest/doctest.h>

#include <climits>
#include <cmath>

#include "any_operator.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"

namespace onnx_model_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using onnx_bytes::FloatTensor;
using OnnxGraph = onnx_bytes::Graph;

namespace {

// y = x + w
class OnnxTestAddOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &w = Input(1);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] = x.data<float>()[i] + w.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(OnnxTestAdd).NumInputs(2).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(OnnxTestAdd, OnnxTestAddOp);
OPERATOR_SCHEMA(OnnxTestStandard).Standard().NumInputs(2).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(OnnxTestStandard, OnnxTestAddOp);

opkit::Graph Parse(const OnnxGraph& graph, int64_t opset = 21) {
  return ParseOnnxModel(graph.Model(opset), AnyOperator()).graph;
}
std::string What(const OnnxGraph& graph, int64_t opset = 21) {
  return ErrorOf([&] { Parse(graph, opset); }).what();
}

}  // namespace

TEST_CASE("A model keeps its name, version and metadata") {
  std::string bytes = OnnxGraph("main").Model(17);
  protozero::pbf_writer writer(bytes);
  writer.add_string(4, "org.example");
  writer.add_int64(5, 3);
  writer.add_string(6, "what it is for");
  OnnxGraph::AddOpset(writer, 8, "org.example.ops", 2);
  protozero::pbf_writer entry(writer, 14);
  entry.add_string(1, "author");
  entry.add_string(2, "somebody");
  entry.commit();
  const OnnxModel model = ParseOnnxModel(bytes);
  CHECK(model.name == "main");
  CHECK(model.ir_version == 8);
  CHECK(model.producer == "opkit 1.2");
  CHECK(model.domain == "org.example");
  CHECK(model.model_version == 3);
  CHECK(model.doc == "what it is for");
  CHECK(model.opset() == 17);
  CHECK(model.opset("org.example.ops") == 2);
  CHECK(model.opset("unknown") == 0);
  REQUIRE(model.metadata.size() == 1);
  CHECK(model.metadata[0].first == "author");
  CHECK(model.metadata[0].second == "somebody");
}

TEST_CASE("An input that is an initializer has a default, from version 4 of the file format on") {
  const OnnxGraph model = OnnxGraph()
                              .Input("w", {2})
                              .Input("x", {2})
                              .Initializer(FloatTensor("w", {2}, {1, 2}))
                              .Initializer(FloatTensor("c", {2}, {3, 4}))
                              .Node("OnnxTestAdd", {"x", "w"}, {"h"})
                              .Node("OnnxTestAdd", {"h", "c"}, {"y"})
                              .Output("y");
  const opkit::Graph graph = ParseOnnxModel(model.Model()).graph;
  REQUIRE(graph.inputs().size() == 2);
  CHECK(graph.inputs()[0].name == "x");  // inputs that a run must be given come first
  CHECK(graph.inputs()[1].name == "w");
  CHECK(graph.inputs()[1].info.shape == SymbolicShape{2});
  REQUIRE(graph.constants().size() == 1);
  Executor exec(Compile(graph, {.threads = 1}));
  const auto run = [&](const std::vector<NamedTensor>& inputs) {
    return exec.Run(inputs)[0].ToVector<float>();
  };
  const Tensor x = Tensor::From<float>({2}, {10, 20}), w = Tensor::From<float>({2}, {5, 6});
  CHECK(run({{"x", x}}) == std::vector<float>{14, 26});
  CHECK(run({{"x", x}, {"w", w}}) == std::vector<float>{18, 30});

  std::string old = model.Model();
  protozero::pbf_writer(old).add_int64(1, 3);  // the last value of a field holds
  CHECK(ParseOnnxModel(old).graph.inputs().size() == 1);
  OnnxOptions fixed;
  fixed.fix_defaults = true;
  CHECK(ParseOnnxModel(model.Model(), fixed).graph.constants().size() == 2);

  const std::string wrong =
      What(OnnxGraph().Input("w", {3}).Initializer(FloatTensor("w", {2}, {1, 2})).Output("w"));
  CHECK(wrong.find("input 'w'") != std::string::npos);
  CHECK(wrong.find("its default is") != std::string::npos);
}

TEST_CASE("A default whose elements the reader uses stays a constant, with a warning") {
  // An empty constant as the scales of a Resize means no scales; the rule drops it.
  const std::string bytes = OnnxGraph()
                                .Input("x", {1, 1, 2, 2})
                                .Input("scales", {0})
                                .Initializer(FloatTensor("scales", {0}, {}))
                                .Node("Resize", {"x", "", "scales"}, {"y"})
                                .Output("y")
                                .Model(19);
  const OnnxModel model = ParseOnnxModel(bytes, AnyOperator());
  CHECK(model.graph.inputs().size() == 1);
  REQUIRE(model.warnings.size() == 1);
  CHECK(model.warnings[0].find("input 'scales' keeps its default") != std::string::npos);
}

TEST_CASE("A body captures an input with a default, since a run may give it another value") {
  const std::string branch =
      OnnxGraph("b").Node("OnnxTestAdd", {"x", "w"}, {"r"}).Output("r").bytes;
  const opkit::Graph graph = Parse(OnnxGraph()
                                       .Input("c", {}, onnx_bytes::kBool)
                                       .Input("x", {2})
                                       .Input("w", {2})
                                       .Initializer(FloatTensor("w", {2}, {1, 2}))
                                       .Node("If", {"c"}, {"y"},
                                             {AttributeProto::Graph("then_branch", branch),
                                              AttributeProto::Graph("else_branch", branch)})
                                       .Output("y"));
  CHECK(graph.node(0).inputs() == Strings{"c", "x", "w"});
  CHECK(graph.FindInput("w")->has_default());
}

TEST_CASE("Inputs have dtypes, extents and symbols; initializers are constants") {
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("x", {"N", 3, "?", -1, "", 0, "N"}, onnx_bytes::kDouble)
                .Input("scalar", {}, onnx_bytes::kBool)
                .UntypedInput("anything")
                .Initializer(FloatTensor("w", {2}, {1, 2}))
                .Output("w"));
  REQUIRE(graph.inputs().size() == 3);
  const TensorInfo& x = graph.inputs()[0].info;
  CHECK(x.dtype == DType::kFloat64);
  CHECK(x.shape == SymbolicShape{Sym("N"), 3, Dim(), Dim(), Dim(), 0, Sym("N")});
  CHECK(graph.inputs()[1].info.dtype == DType::kBool);
  CHECK(graph.inputs()[1].info.shape == SymbolicShape(Shape{}));
  CHECK(graph.inputs()[2].info.dtype == DType::kUndefined);
  CHECK(!graph.inputs()[2].info.shape.has_rank());
  REQUIRE(graph.constants().size() == 1);
  CHECK(graph.FindConstant("w")->ToVector<float>() == std::vector<float>{1, 2});
  CHECK(graph.outputs() == Strings{"w"});
}

TEST_CASE("Nodes keep names, order, missing inputs and every kind of attribute") {
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("x y/z")
                .Node("First", {"x y/z", "", "x y/z"}, {"a", "", "b c"},
                      {AttributeProto::Float("float", 0.1f), AttributeProto::Int("int", -5),
                       AttributeProto::String("string", std::string("a\0b", 3)),
                       AttributeProto::Tensor("tensor", FloatTensor("", {1}, {7})),
                       AttributeProto::Floats("floats", {1.5f, INFINITY}),
                       AttributeProto::Ints("ints", {1, -1}),
                       AttributeProto::Strings("strings", {"", "s"}),
                       AttributeProto::Tensors(
                           "tensors", {FloatTensor("", {}, {1}), FloatTensor("", {}, {2})}),
                       AttributeProto::Ints("none", {}), AttributeProto("zero", 2),
                       AttributeProto("empty", 3)},
                      "a name/with: anything")
                .Node("Second", {"b c"}, {"out"})
                .Output("out")
                .Output("a"));
  REQUIRE(graph.num_nodes() == 2);
  const OperatorDef& node = graph.node(0);
  CHECK(node.type() == "First");
  CHECK(node.name() == "a name/with: anything");
  CHECK(node.inputs() == Strings{"x y/z", "", "x y/z"});
  CHECK(node.outputs() == Strings{"a", "", "b c"});
  CHECK(node.args().Get<float>("float", 0.f) == 0.1f);
  CHECK(node.args().Get<int64_t>("int", 0) == -5);
  CHECK(node.args().Get<std::string>("string", "") == std::string("a\0b", 3));
  CHECK(node.args().Find("tensor")->Get<Tensor>().ToVector<float>() == std::vector<float>{7});
  CHECK(node.args().Get<std::vector<float>>("floats", {}) == std::vector<float>{1.5f, INFINITY});
  CHECK(node.args().Get<std::vector<int64_t>>("ints", {}) == std::vector<int64_t>{1, -1});
  CHECK(node.args().Get<Strings>("strings", {}) == Strings{"", "s"});
  CHECK(node.args().Find("tensors")->Get<std::vector<Tensor>>()[1].data<float>()[0] == 2.f);
  CHECK(node.args().Find("none")->Is<std::vector<int64_t>>());
  CHECK(node.args().Find("none")->size() == 0);
  CHECK(node.args().Get<int64_t>("zero", 1) == 0);
  CHECK(node.args().Get<std::string>("empty", "x").empty());
  CHECK(graph.node(1).name().empty());
  CHECK(graph.outputs() == Strings{"out", "a"});
}

TEST_CASE("The type of an attribute of an old file follows from its value") {
  std::string attribute, node = onnx_bytes::Node("Op", {}, {"y"});
  protozero::pbf_writer writer(attribute);
  writer.add_string(1, "axes");
  writer.add_int64(8, 1);
  writer.add_int64(8, 2);
  protozero::pbf_writer(node).add_message(5, attribute);
  const opkit::Graph graph = Parse(OnnxGraph().Add(node).Output("y"));
  CHECK(graph.node(0).args().Get<std::vector<int64_t>>("axes", {}) == std::vector<int64_t>{1, 2});
}

TEST_CASE("Constant nodes in all their forms are constants") {
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Node("Constant", {}, {"t"},
                      {AttributeProto::Tensor("value", FloatTensor("", {2}, {1, 2}))})
                .Node("Constant", {}, {"f"}, {AttributeProto::Float("value_float", 0.5f)})
                .Node("Constant", {}, {"fs"}, {AttributeProto::Floats("value_floats", {1, 2, 3})})
                .Node("Constant", {}, {"i"}, {AttributeProto::Int("value_int", 7)})
                .Node("Constant", {}, {"is"}, {AttributeProto::Ints("value_ints", {})})
                .Output("t"));
  CHECK(graph.num_nodes() == 0);
  REQUIRE(graph.constants().size() == 5);
  CHECK(graph.FindConstant("t")->ToVector<float>() == std::vector<float>{1, 2});
  CHECK(graph.FindConstant("f")->shape() == Shape{});
  CHECK(graph.FindConstant("f")->data<float>()[0] == 0.5f);
  CHECK(graph.FindConstant("fs")->shape() == Shape{3});
  CHECK(graph.FindConstant("i")->data<int64_t>()[0] == 7);
  CHECK(graph.FindConstant("is")->shape() == Shape{0});
  CHECK(graph.FindConstant("is")->dtype() == DType::kInt64);

  const Graph texts =
      ParseOnnxModel(
          OnnxGraph()
              .Node("Constant", {}, {"s"}, {AttributeProto::String("value_string", "hi")})
              .Node("Constant", {}, {"ss"}, {AttributeProto::Strings("value_strings", {"a", ""})})
              .Model())
          .graph;
  CHECK(texts.FindConstant("s")->shape() == Shape{});
  CHECK(texts.FindConstant("s")->ToVector<std::string>() == std::vector<std::string>{"hi"});
  CHECK(texts.FindConstant("ss")->ToVector<std::string>() == std::vector<std::string>{"a", ""});
  CHECK(Contains(What(OnnxGraph().Node("Constant", {}, {"s"}, {AttributeProto::Float("value", 1)})),
                 "node 0 (Constant): attribute 'value' of this type"));
  CHECK(Contains(What(OnnxGraph().Node("Constant", {}, {"s"})), "has one attribute, found 0"));
  CHECK(Contains(
      What(OnnxGraph().Node("Constant", {}, {"a", "b"}, {AttributeProto::Float("value_float", 1)})),
      "has one output, found 2"));
}

TEST_CASE("A model runs with the operators that the program registers") {
  const opkit::Graph graph =
      ParseOnnxModel(OnnxGraph()
                         .Input("x", {"N"})
                         .Initializer(FloatTensor("w", {2}, {10, 20}))
                         .Node("OnnxTestAdd", {"x", "w"}, {"h"})
                         .Node("OnnxTestAdd", {"h", "h"}, {"y"}, {}, "", "ai.onnx")
                         .Output("y")
                         .Model())
          .graph;
  Executor executor(Compile(graph));
  const auto outputs = executor.Run({{"x", Tensor::From<float>({2}, {1, 2})}});
  CHECK(outputs.Get("y").ToVector<float>() == std::vector<float>{22, 44});
}

TEST_CASE("Operators of other domains are registered with the domain or without") {
  const auto type = [](const char* op, const char* domain) {
    return Parse(OnnxGraph().Node(op, {}, {"y"}, {}, "", domain)).node(0).type();
  };
  CHECK(type("OnnxTestAdd", "com.example") == "OnnxTestAdd");
  CHECK(type("OnnxTestNone", "com.example") == "com.example.OnnxTestNone");
  OpRegistry::Global().AddSchema("com.example.OnnxTestAdd", __FILE__, __LINE__);
  CHECK(type("OnnxTestAdd", "com.example") == "com.example.OnnxTestAdd");
  OpRegistry::Global().Remove("com.example.OnnxTestAdd");
  CHECK(type("OnnxTestAdd", "ai.onnx") == "OnnxTestAdd");
}

TEST_CASE("A node of another domain is not taken for the standard operator of its name") {
  const auto model = [](const char* domain) {
    return OnnxGraph()
        .Input("x")
        .Node("OnnxTestStandard", {"x", "x"}, {"y"}, {}, "sum", domain)
        .Output("y")
        .Model();
  };
  const Error error = ErrorOf([&] { ParseOnnxModel(model("com.me")); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "node 'sum' (com.me.OnnxTestStandard): operator com.me.OnnxTestStandard of domain 'com.me' "
        "is not registered in this program; if it is the standard operator "
        "OnnxTestStandard, set OnnxOptions::standard_operators_in_any_domain");
  const OnnxModel asked =
      ParseOnnxModel(model("com.me"), {.standard_operators_in_any_domain = true});
  CHECK(asked.graph.node(0).type() == "OnnxTestStandard");
  CHECK(asked.warnings == std::vector<std::string>{
                              "node OnnxTestStandard 'sum' (x, x) -> (y) of domain 'com.me' runs "
                              "the standard operator OnnxTestStandard"});
  for (const char* domain : {"", "ai.onnx"}) {
    const OnnxModel own = ParseOnnxModel(model(domain));
    CHECK(own.graph.node(0).type() == "OnnxTestStandard");
    CHECK(own.warnings.empty());
  }
  CHECK(ParseOnnxModel(model("com.me"), AnyOperator()).graph.node(0).type() ==
        "com.me.OnnxTestStandard");
}

TEST_CASE("The output of a ZipMap is its tensor of scores, and a warning gives the labels") {
  const auto model = [](std::vector<std::string> outputs, OnnxOptions options = AnyOperator()) {
    return ParseOnnxModel(
        OnnxGraph()
            .Input("scores")
            .Node("ZipMap", {"scores"}, outputs,
                  {onnx_bytes::AttributeProto::Ints("classlabels_int64s", {7, 9})}, "zip",
                  "ai.onnx.ml")
            .Output("maps")
            .Output("scores", {2, 2})
            .Model(),
        options);
  };
  const OnnxModel read = model({"maps"});
  CHECK(read.graph.node(0).type() == "Identity");
  CHECK(read.graph.node(0).args().empty());
  REQUIRE(read.warnings.size() == 1);
  CHECK(read.warnings[0] ==
        "ZipMap: 'maps' is the tensor of scores, not maps; its columns are those of the labels "
        "[7, 9]");
  CHECK(Contains(ErrorOf([&] {
                   model({"maps", "more"});
                 }).message(),
                 "a ZipMap has one input and one output"));

  OnnxOptions columns = AnyOperator();
  columns.zipmap_columns = true;
  const OnnxModel split = model({"maps"}, columns);
  CHECK(split.warnings.empty());
  CHECK(split.graph.outputs() == std::vector<std::string>{"maps.7", "maps.9", "scores"});
  CHECK(split.output_types.size() == 3);
  CHECK(split.output_types[1].dtype == DType::kUndefined);
  CHECK(split.output_types[2].dtype == DType::kFloat32);
  CHECK(split.graph.node(1).type() == "Gather");
  CHECK(split.graph.node(1).outputs() == std::vector<std::string>{"maps.9"});
  CHECK(split.graph.FindConstant(split.graph.node(1).inputs()[1])->ToVector<int64_t>() ==
        std::vector<int64_t>{1});
}

TEST_CASE("A ZipMap with another number of labels than of columns is an Error that names it") {
  for (const bool zipmap_columns : {false, true}) {
    for (const int count : {1, 3}) {
      OnnxOptions options = AnyOperator();
      options.zipmap_columns = zipmap_columns;
      const Error error = ErrorOf([&] {
        ParseOnnxModel(OnnxGraph()
                           .Input("scores", {2, count})
                           .Node("ZipMap", {"scores"}, {"maps"},
                                 {onnx_bytes::AttributeProto::Ints("classlabels_int64s", {7, 9})},
                                 "zip", "ai.onnx.ml")
                           .Output("maps")
                           .Model(),
                       options);
      });
      CHECK(error.code() == ErrorCode::kInvalidArgument);
      CHECK(error.message() ==
            StrCat("node 'zip' (ai.onnx.ml.ZipMap): a ZipMap has a label for each column, "
                   "found 2 labels and ",
                   count, " columns"));
    }
  }
}

TEST_CASE("Attributes that ONNX's own operators do not have are Errors that name the node") {
  const auto model = [](const char* domain) {
    return OnnxGraph()
        .Input("x")
        .Node("OnnxTestAdd", {"x", "x"}, {"y"}, {AttributeProto::Float("alpha", 1)}, "sum", domain)
        .Output("y")
        .Model();
  };
  for (const char* domain : {"", "ai.onnx"}) {
    const Error error = ErrorOf([&] { ParseOnnxModel(model(domain)); });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(error.message() == "node 'sum' (OnnxTestAdd): OnnxTestAdd has no argument 'alpha'");
  }
  CHECK(ParseOnnxModel(model("com.example")).graph.node(0).args().Has("alpha"));
  CHECK(ParseOnnxModel(model(""), AnyOperator()).graph.node(0).args().Has("alpha"));
}

TEST_CASE("A value with more bytes than can be counted is an Error that names its node") {
  const opkit::Graph graph = ParseOnnxModel(OnnxGraph()
                                                .Input("x", {INT_MAX, INT_MAX, 2})
                                                .Node("OnnxTestAdd", {"x", "x"}, {"y"}, {}, "sum")
                                                .Output("y")
                                                .Model())
                                 .graph;
  const Error error = ErrorOf([&] { Compile(graph); });
  CHECK(Contains(error.message(), "has more bytes than a 64-bit count can hold"));
  CHECK(Contains(error.what(), "'y', which node OnnxTestAdd 'sum' (x, x) -> (y) makes"));
}

TEST_CASE("An operator that is not registered is an Error that names the nearest") {
  const auto error = [](const OnnxGraph& graph) {
    return ErrorOf([&] { ParseOnnxModel(graph.Model()); });
  };
  const Error plain = error(OnnxGraph().Node("OnnxTestAd", {}, {"y"}, {}, "sum"));
  CHECK(plain.code() == ErrorCode::kNotFound);
  CHECK(
      Contains(plain.message(),
               "node 'sum' (OnnxTestAd): operator OnnxTestAd (opset 21) is not registered in this "
               "program (did you mean 'OnnxTestAdd'?"));
  CHECK(Contains(error(OnnxGraph().Node("Trilu", {}, {"y"}, {}, "act", "com.microsoft")).message(),
                 "node 'act' (com.microsoft.Trilu): operator com.microsoft.Trilu of domain "
                 "'com.microsoft' is not registered"));
  const Error other = error(OnnxGraph().Node("OnnxTestAd", {}, {"y"}, {}, "sum", "my.domain"));
  CHECK(Contains(other.message(), "did you mean 'OnnxTestAdd'?"));
}

TEST_CASE("A type that opkit cannot hold is an Error that names it") {
  std::string map, type;
  protozero::pbf_writer(type).add_message(5, std::string());
  protozero::pbf_writer(map).add_string(1, "table");
  protozero::pbf_writer(map).add_message(2, type);
  OnnxGraph graph;
  protozero::pbf_writer(graph.bytes).add_message(11, map);
  CHECK(What(graph) ==
        "input 'table': it is a map; opkit's values are tensors, sequences and optional ones of "
        "these");
  graph.Node("DictVectorizer", {"table"}, {"rows"}, {}, "dict", "ai.onnx.ml");
  CHECK(Contains(What(graph),
                 "; remove node 'dict' (ai.onnx.ml.DictVectorizer) from the model, make 'rows' an "
                 "input of it, and compute that tensor in the program"));
  OnnxGraph sparse;
  std::string values;
  protozero::pbf_writer(values).add_message(1, FloatTensor("w", {1}, {1}));
  protozero::pbf_writer(sparse.bytes).add_message(15, values);
  CHECK(What(sparse) == "sparse initializer 'w': opkit has no sparse tensors; store it dense");
  CHECK(What(OnnxGraph().Node("Op", {}, {"y"}, {AttributeProto("type", 13)})) ==
        "node 0 (Op): attribute 'type': it holds a type, which opkit's attributes cannot");
  CHECK(
      What(OnnxGraph().Node("Op", {}, {"y"}, {AttributeProto("sparse", 11)})) ==
      "node 0 (Op): attribute 'sparse': it holds a sparse tensor, which opkit's attributes cannot");
  CHECK(Contains(
      What(OnnxGraph().Node(
          "Op", {}, {"y"},
          {AttributeProto::Tensor("t", onnx_bytes::Raw<char>(8, "words", {1}, {'a'}))}, "n")),
      "node 'n' (Op): attribute 't': tensor 'words': its strings are in raw data"));
}

TEST_CASE("A graph that is no graph is an Error that names the value") {
  CHECK(Contains(What(OnnxGraph().Node("Op", {"nowhere"}, {"y"}, {}, "n")),
                 "node Op 'n' (nowhere) -> (y) reads 'nowhere', which no input, constant or node "
                 "makes"));
  CHECK(Contains(What(OnnxGraph().Output("y")), "constant or node makes output 'y' of the graph"));
  CHECK(Contains(What(OnnxGraph().Node("Op", {"b"}, {"a"}).Node("Op", {"a"}, {"b"}).Output("a")),
                 "cycle"));
  CHECK(What(OnnxGraph().Node("Op", {}, {"y"}).Node("Op", {}, {"y"}, {}, "again")) ==
        "node 'again' (Op): value 'y' is made twice, the second time by this node; an ONNX graph "
        "makes each value once");
  CHECK(Contains(What(OnnxGraph().Input("x").Node("Op", {"x"}, {"x"})), "value 'x' is made twice"));
  CHECK(Contains(What(OnnxGraph().Node("Op", {}, {"y", "y"})), "value 'y' is made twice"));
  CHECK(Contains(What(OnnxGraph().Input("x").Input("x")), "value 'x' is made twice"));
  CHECK(Contains(What(OnnxGraph()
                          .Initializer(FloatTensor("w", {1}, {1}))
                          .Initializer(FloatTensor("w", {1}, {1}))),
                 "value 'w' is made twice"));
  CHECK(
      Contains(What(OnnxGraph().Input("x").Output("x").Output("x")), "is an output of the graph"));
  CHECK(Contains(What(OnnxGraph().Initializer(FloatTensor("", {1}, {1}))), "it has no name"));
  CHECK(Contains(What(OnnxGraph().Node("", {}, {"y"}, {}, "n")), "it has no operator"));
  CHECK(Contains(What(OnnxGraph().Node("Op", {}, {"y"},
                                       {AttributeProto::Int("a", 1), AttributeProto::Int("a", 2)})),
                 "it has the attribute 'a' twice"));
}

}  // namespace onnx_model_test
