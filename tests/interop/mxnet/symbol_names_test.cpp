// MXNet's names of operators and attributes in the JSON of a graph, and opkit's names in the
// answer.
#include "opkit/interop/mxnet/symbol_names.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/interop/graph_pass.hpp"
#include "opkit/macros.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace symbol_names_test {
using namespace opkit;
using detail::FromMxnetJson;
using detail::MxnetText;
using detail::OpkitText;
using detail::ToMxnetJson;
using Json = nlohmann::ordered_json;

namespace {

OPERATOR_SCHEMA(NamesTestSame).NumInputs(1, 2).NumOutputs(1).IdenticalTypeAndShape();

std::string TextOf(const Graph& graph) {
  const GraphView view(graph);
  return WriteSymbolJson(view, InferGraph(view, {}, UnknownOperators::kAllowed)).text;
}
Json Sent(const Graph& graph) { return Json::parse(ToMxnetJson(TextOf(graph))); }
using Change = std::function<void(Json&)>;
Graph After(const Graph& graph, const Change& change) {
  const std::string text = TextOf(graph);
  Json json = Json::parse(ToMxnetJson(text));
  change(json);
  return ReadSymbolJson(graph, FromMxnetJson(text, json.dump()));
}

// A graph of one node, which is called n, with inputs of float32 called a, b, c.
Graph One(const OperatorDef& node, const std::vector<std::vector<int64_t>>& shapes,
          DType dtype = DType::kFloat32) {
  Graph graph;
  OperatorDef def = node;
  def.Name("n");
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    std::vector<Dim> dims;
    for (const int64_t extent : shapes[i]) dims.push_back(extent < 0 ? Dim() : Dim(extent));
    graph.AddInput(name, dtype, SymbolicShape(dims));
    def.mutable_inputs().push_back(name);
  }
  if (def.outputs().empty()) def.mutable_outputs() = {"y"};
  graph.AddNode(def);
  graph.AddOutput(def.outputs()[0]);
  return graph;
}
// The node as MXNet sees it: "exp {}", "Activation {act_type=relu}".
std::string Seen(const Json& json) {
  const Json& node = json["nodes"].back();
  std::string out;
  for (const auto& item : node["attrs"].items())
    if (!item.key().starts_with("__"))
      out += StrCat(out.empty() ? "" : " ", item.key(), "=", item.value().get<std::string>());
  return StrCat(node["op"].get<std::string>(), " {", out, "}");
}

}  // namespace

TEST_CASE("texts of attributes are spelt as MXNet spells them, and back") {
  const std::pair<const char*, const char*> pairs[] = {
      {"[3, 3]", "(3, 3)"}, {"[3]", "(3,)"},
      {"[]", "()"},         {"true", "True"},
      {"false", "False"},   {"[true, false]", "(True, False)"},
      {"0.1", "0.1"},       {"[-1, 2.5]", "(-1, 2.5)"},
      {"text", "text"},     {"", ""},
      {"-7", "-7"}};
  for (const auto& [opkit, mxnet] : pairs) {
    CHECK(MxnetText(opkit) == mxnet);
    CHECK(OpkitText(mxnet) == opkit);
  }
  CHECK(OpkitText("(1,2)") == "[1, 2]");
  CHECK(OpkitText("None") == "None");
  for (const char* other : {"[\"a\", \"b, c\"]", "[[1, 2]]", "[a]", "[1, ,2]", "[", "]", "[1"}) {
    CHECK(MxnetText(other) == other);
    CHECK(OpkitText(other) == other);
  }
}

TEST_CASE("a library sees MXNet's names, types and shapes") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2, 3});
  graph.AddInput("I", DType::kInt64, {3});
  graph.AddInput("free", DType::kFloat32, SymbolicShape());
  graph.AddConstant("W", Tensor::From<double>({}, {2}));
  graph.AddNode(OperatorDef("Exp", {"X"}, {"A"}).Name("e"));
  graph.AddNode(OperatorDef("Add", {"A", "A"}, {"B"}).Name("sum").ControlInput("e"));
  graph.AddNode(OperatorDef("my_gemm", {"B", "X", "W"}, {"C", "D"})
                    .Name("own\\")
                    .Arg("axes", Ints{0, 1})
                    .Arg("on", true));
  graph.AddNode(OperatorDef("Neg", {"free"}, {"E"}).Name("neg"));
  for (const char* name : {"B", "C", "E"}) graph.AddOutput(name);
  const std::string text = ToMxnetJson(TextOf(graph));
  const Json json = Json::parse(text);
  const Json& nodes = json["nodes"];
  REQUIRE(nodes.size() == 8);
  const Json variable = {{"isArg", "True"},
                         {"argName", "X"},
                         {"isAux", "False"},
                         {"__ext_dtype__", "[0]"},
                         {"__ext_shape__", "[[2,3]]"},
                         {"__shape__", "(2, 3)"}};
  CHECK(nodes[0] ==
        Json({{"op", "null"}, {"name", "X"}, {"attrs", variable}, {"inputs", Json::array()}}));
  CHECK(nodes[1]["attrs"]["__ext_dtype__"] == "[6]");
  CHECK(nodes[1]["attrs"]["__ext_shape__"] == "[[3]]");
  CHECK(nodes[1]["attrs"]["__shape__"] == "(3,)");
  CHECK(nodes[2]["attrs"]["__ext_dtype__"] == "[0]");
  CHECK(!nodes[2]["attrs"].contains("__ext_shape__"));
  CHECK(!nodes[2]["attrs"].contains("__shape__"));
  CHECK(nodes[3]["attrs"]["argName"] == "W");
  CHECK(nodes[3]["attrs"]["__ext_dtype__"] == "[1]");
  CHECK(nodes[3]["attrs"]["__ext_shape__"] == "[[]]");
  CHECK(!nodes[3]["attrs"].contains("constant"));
  std::map<std::string, Json> by_name;
  for (const Json& node : nodes) by_name[node["name"]] = node;
  CHECK(by_name["e"]["op"] == "exp");
  CHECK(!by_name["e"]["attrs"].contains("__shape__"));
  CHECK(by_name["sum"]["op"] == "elemwise_add");
  CHECK(by_name["sum"]["inputs"] == Json::parse("[[4, 0, 0], [4, 0, 0]]"));
  CHECK(by_name["own\\"]["op"] == "my_gemm");
  CHECK(by_name["own\\"]["attrs"] == Json({{"axes", "(0, 1)"}, {"on", "True"}}));
  CHECK(json["arg_nodes"] == Json::parse("[0, 1, 2, 3]"));
  CHECK(json["heads"].size() == 3);
  CHECK(json["node_row_ptr"].size() == 9);
  CHECK(json["node_row_ptr"].back() == 9);
  CHECK(json.size() == 4);
  // The text has nothing that MXNet's reader cannot read.
  const std::function<void(const Json&)> readable = [&](const Json& part) {
    CHECK((part.is_string() || part.is_structured() || part.is_number_unsigned()));
    if (part.is_structured())
      for (const Json& inner : part) readable(inner);
  };
  readable(json);
  CHECK(!Contains(text, "\\\\\""));  // it would read on behind this quote
  CHECK(Contains(text, "\"own\\u005c\""));
  CHECK(SameGraph(After(graph, [](Json&) {}), graph));
}

TEST_CASE("operators become MXNet's exactly, or stay") {
  using D = OperatorDef;
  const auto same = [](const D& node, const std::vector<std::vector<int64_t>>& shapes,
                       const std::string& seen, DType dtype = DType::kFloat32) {
    CAPTURE(seen);
    const Graph graph = One(node, shapes, dtype);
    CHECK(Seen(Sent(graph)) == seen);
    CHECK(SameGraph(After(graph, [](Json&) {}), graph));
  };
  same(D("Add"), {{2, 3}, {2, 3}}, "elemwise_add {}");
  same(D("Add"), {{2, 3}, {3}}, "broadcast_add {}");
  same(D("Mul"), {{2, -1}, {2, -1}}, "elemwise_mul {}");
  same(D("Mul"), {{2, -1}, {2, 1}}, "broadcast_mul {}");
  same(D("Max"), {{2}, {2}}, "_maximum {}");
  same(D("Max"), {{2}, {2}, {2}}, "Max {}");
  same(D("Sum"), {{2}, {2}, {2}}, "add_n {num_args=3}");
  same(D("Sum"), {{2}, {1}, {2}}, "Sum {}");
  same(D("Relu"), {{2}}, "relu {}");
  same(D("Softplus"), {{2}}, "Activation {act_type=softrelu}");
  same(D("LeakyRelu"), {{2}}, "LeakyReLU {act_type=leaky slope=0.01}");
  same(D("Elu").Arg("alpha", 0.5), {{2}}, "LeakyReLU {act_type=elu slope=0.5}");
  same(D("Identity"), {{2}}, "_copy {}");
  same(D("Round"), {{2}}, "Round {}");
  same(D("Greater"), {{2}, {2}}, "Greater {}");

  same(D("MatMul"), {{2, 3}, {3, 4}}, "dot {transpose_a=False transpose_b=False}");
  same(D("MatMul"), {{5, 2, 3}, {5, 3, 4}}, "batch_dot {transpose_a=False transpose_b=False}");
  same(D("MatMul"), {{5, 2, 3}, {3, 4}}, "MatMul {}");
  same(D("MatMul"), {{-1, 2, 3}, {-1, 3, 4}}, "MatMul {}");

  same(D("Conv").Arg("kernel_shape", Ints{3, 3}).Arg("pads", Ints{1, 2, 1, 2}).Arg("group", 2),
       {{1, 4, 8, 8}, {6, 2, 3, 3}, {6}},
       "Convolution {kernel=(3, 3) pad=(1, 2) num_group=2 num_filter=6 no_bias=False}");
  same(D("Conv").Arg("strides", Ints{2}).Arg("dilations", Ints{3}), {{1, 4, 9}, {6, 4, 3}},
       "Convolution {kernel=(3,) stride=(2,) dilate=(3,) num_group=1 num_filter=6 no_bias=True}");
  same(D("Conv").Arg("pads", Ints{1, 1, 2, 2}), {{1, 4, 8, 8}, {6, 4, 3, 3}},
       "Conv {pads=(1, 1, 2, 2)}");
  same(D("Conv").Arg("pads", Ints{1, -1, 1, -1}), {{1, 4, 8, 8}, {6, 4, 3, 3}},
       "Conv {pads=(1, -1, 1, -1)}");
  same(D("Conv").Arg("pads", Ints()), {{1, 4, 8}, {6, 4, 3}},
       "Convolution {kernel=(3,) num_group=1 num_filter=6 no_bias=True}");
  same(D("ConvTranspose").Arg("group", INT64_MAX), {{1, 4, 8}, {4, 3, 3}},
       StrCat("ConvTranspose {group=", INT64_MAX, "}"));
  same(D("Conv").Arg("auto_pad", "SAME_UPPER"), {{1, 4, 8, 8}, {6, 4, 3, 3}},
       "Conv {auto_pad=SAME_UPPER}");
  same(D("Conv").Arg("auto_pad", "NOTSET"), {{1, 4, 8, 8}, {-1, 4, 3, 3}},
       "Conv {auto_pad=NOTSET}");
  same(D("ConvTranspose").Arg("output_padding", Ints{1}).Arg("strides", Ints{2}).Arg("group", 2),
       {{1, 4, 8}, {4, 3, 3}},
       "Deconvolution {kernel=(3,) stride=(2,) adj=(1,) num_group=2 num_filter=6 no_bias=True}");
  same(D("ConvTranspose").Arg("output_shape", Ints{17}), {{1, 4, 8}, {4, 3, 3}},
       "ConvTranspose {output_shape=(17,)}");
  same(D("MaxPool").Arg("kernel_shape", Ints{2, 2}).Arg("strides", Ints{2, 2}), {{1, 2, 8, 8}},
       "Pooling {global_pool=False pool_type=max kernel=(2, 2) stride=(2, 2) "
       "pooling_convention=valid}");
  same(D("MaxPool").Arg("kernel_shape", Ints{2}).Arg("dilations", Ints{1}), {{1, 2, 8}},
       "Pooling {global_pool=False pool_type=max kernel=(2,) pooling_convention=valid}");
  same(D("MaxPool").Arg("kernel_shape", Ints{2}).Arg("dilations", Ints{2}), {{1, 2, 8}},
       "MaxPool {kernel_shape=(2,) dilations=(2,)}");
  same(D("MaxPool").Arg("kernel_shape", Ints{2}).Arg("ceil_mode", 1), {{1, 2, 8}},
       "MaxPool {kernel_shape=(2,) ceil_mode=1}");
  same(D("MaxPool", {}, {"y", "where"}).Arg("kernel_shape", Ints{2}), {{1, 2, 8}},
       "MaxPool {kernel_shape=(2,)}");
  same(D("AveragePool").Arg("kernel_shape", Ints{2}).Arg("pads", Ints{1, 1}), {{1, 2, 8}},
       "Pooling {global_pool=False pool_type=avg kernel=(2,) pad=(1,) count_include_pad=False "
       "pooling_convention=valid}");
  same(D("GlobalAveragePool"), {{1, 2, 8, 8}}, "Pooling {global_pool=True pool_type=avg}");
  same(D("Gemm").Arg("transB", 1), {{2, 3}, {4, 3}, {4}},
       "FullyConnected {num_hidden=4 no_bias=False}");
  same(D("Gemm").Arg("transB", 1), {{2, 3}, {4, 3}, {1}}, "Gemm {transB=1}");
  same(D("Gemm"), {{2, 3}, {3, 4}, {4}}, "Gemm {}");
  same(D("Gemm").Arg("transB", 1).Arg("alpha", 2.0), {{2, 3}, {4, 3}}, "Gemm {transB=1 alpha=2}");
  same(D("BatchNormalization").Arg("epsilon", 0.5), {{1, 2, 3}, {2}, {2}, {2}, {2}},
       "BatchNorm {eps=0.5 momentum=0.9 fix_gamma=False use_global_stats=True "
       "output_mean_var=False axis=1}");
  same(D("LRN").Arg("size", 5), {{1, 8, 4}}, "LRN {nsize=5 alpha=0.0001 beta=0.75 knorm=1}");
  same(D("LRN").Arg("size", 4), {{1, 8, 4}}, "ai.onnx.LRN {size=4}");
  same(D("LayerNormalization"), {{2, 3}, {3}, {3}},
       "LayerNorm {eps=1e-05 axis=-1 output_mean_var=False}");
  same(D("LayerNormalization").Arg("axis", 0), {{2, 3}, {2, 3}, {2, 3}},
       "LayerNormalization {axis=0}");

  same(D("Softmax").Arg("axis", 1), {{2, 3}}, "softmax {axis=1 use_length=False}");
  same(D("Concat").Arg("axis", 0), {{2, 3}, {1, 3}}, "Concat {dim=0 num_args=2}");
  same(D("Flatten"), {{2, 3}}, "Flatten {}");
  same(D("Flatten").Arg("axis", 2), {{2, 3}}, "ai.onnx.Flatten {axis=2}");
  same(D("Reshape"), {{2, 3}, {1}}, "ai.onnx.Reshape {}");
  same(D("Transpose").Arg("perm", Ints{1, 0}), {{2, 3}}, "transpose {axes=(1, 0)}");
  same(D("Transpose"), {{2, 3}}, "transpose {}");
  same(D("Gather"), {{2, 3}, {2}}, "take {axis=0 mode=wrap}");
  same(D("Cast").Arg("to", 10), {{2}}, "Cast {dtype=float16}");
  same(D("Cast").Arg("to", 8), {{2}}, "ai.onnx.Cast {to=8}");
  same(D("ReduceSum"), {{2, 3}}, "sum {keepdims=True exclude=False}");
  same(D("ReduceSum").Arg("keepdims", 0), {{2, 3}}, "ReduceSum {keepdims=0}");
  same(D("ReduceSum"), {{2, 3}, {1}}, "ReduceSum {}");
  same(D("Where"), {{2}, {2}, {2}}, "where {}");
  same(D("Where"), {{2}, {2, 2}, {2, 2}}, "Where {}");
  same(D("PRelu"), {{2, 3}, {1}}, "LeakyReLU {act_type=prelu}");
  same(D("PRelu"), {{2, 3}, {3}}, "PRelu {}");
  same(D("Squeeze"), {{1, 3}}, "squeeze {}");
  same(D("Squeeze"), {{1, 1}}, "Squeeze {}");  // MXNet keeps one axis
  same(D("DepthToSpace").Arg("blocksize", 2), {{1, 4, 2, 2}}, "depth_to_space {block_size=2}");
  same(D("DepthToSpace").Arg("blocksize", 2).Arg("mode", "CRD"), {{1, 4, 2, 2}},
       "DepthToSpace {blocksize=2 mode=CRD}");
  same(D("ReduceL1"), {{2, 3}}, "norm {ord=1 keepdims=True}");
  same(D("Dropout"), {{2, 3}}, "Dropout {p=0.5 mode=training}");
  same(D("Dropout").Arg("seed", 1), {{2, 3}}, "ai.onnx.Dropout {seed=1}");
}

TEST_CASE("nodes that a library changed or made get opkit's names") {
  const auto made = [](const std::string& op, const Json& attrs,
                       const std::vector<std::vector<int64_t>>& shapes) {
    const Graph graph = One(OperatorDef("Kept"), shapes);
    const Graph after = After(graph, [&](Json& json) {
      Json node = {{"op", op}, {"name", "new"}, {"inputs", json["nodes"].back()["inputs"]}};
      if (!attrs.is_null()) node["attrs"] = attrs;
      json["nodes"].push_back(node);
      json["heads"][0][0] = json["nodes"].size() - 1;
    });
    OperatorDef def = after.node(after.Producer("y"));
    std::string out = ToString(def.Name(""));
    for (const std::string& name : def.args().Names())
      out += StrCat(" ", name, "=", def.args().Get<std::string>(name));
    return out;
  };
  const Json none;
  CHECK(made("_plus", none, {{2}, {2}}) == "Add (a, b) -> (y)");
  CHECK(made("identity", none, {{2}}) == "Identity (a) -> (y)");
  CHECK(made("Activation", {{"act_type", "tanh"}}, {{2}}) == "Tanh (a) -> (y)");
  CHECK(made("Activation", {{"act_type", "mish"}}, {{2}}) == "Activation (a) -> (y) act_type=mish");
  CHECK(made("LeakyReLU", none, {{2}}) == "LeakyRelu (a) -> (y) alpha=0.25");
  CHECK(made("Convolution",
             {{"kernel", "(3, 3)"},
              {"num_filter", "6"},
              {"no_bias", "True"},
              {"pad", "(1, 1)"},
              {"cudnn_tune", "off"},
              {"layout", "NCHW"},
              {"__lr_mult__", "1"}},
             {{1, 4, 8, 8}, {6, 4, 3, 3}}) ==
        "Conv (a, b) -> (y) kernel_shape=[3, 3] pads=[1, 1, 1, 1] group=1");
  CHECK(Contains(
      made("Convolution", {{"kernel", "(3,)"}, {"num_filter", "6"}}, {{1, 4, 8}, {6, 4, 3}}),
      "Convolution (a, b)"));  // two inputs, but no_bias is False
  CHECK(Contains(made("Convolution", {{"kernel", "(3,)"}, {"no_bias", "1"}, {"layout", "NWC"}},
                      {{1, 4, 8}, {6, 4, 3}}),
                 "Convolution (a, b)"));
  CHECK(made("Pooling", {{"kernel", "(2,)"}, {"pool_type", "avg"}}, {{1, 4, 8}}) ==
        "AveragePool (a) -> (y) kernel_shape=[2] count_include_pad=1");
  CHECK(made("Pooling", {{"kernel", "(2,)"}, {"global_pool", "True"}, {"stride", "(1,)"}},
             {{1, 4, 8}}) == "GlobalMaxPool (a) -> (y)");
  CHECK(Contains(made("Pooling", {{"kernel", "(2,)"}, {"pooling_convention", "full"}}, {{1, 4, 8}}),
                 "Pooling (a)"));
  CHECK(made("FullyConnected", {{"num_hidden", "4"}}, {{2, 3}, {4, 3}, {4}}) ==
        "Gemm (a, b, c) -> (y) transB=1");
  // A tensor of rank 3 would be flattened first.
  CHECK(Contains(made("FullyConnected", {{"num_hidden", "4"}}, {{2, 3, 1}, {4, 3}, {4}}),
                 "FullyConnected (a, b, c)"));
  CHECK(Contains(made("BatchNorm", none, {{1, 2}, {2}, {2}, {2}, {2}}), "BatchNorm (a"));
  CHECK(made("concat", {{"num_args", "2"}}, {{2, 2}, {2, 2}}) == "Concat (a, b) -> (y) axis=1");
  CHECK(made("dot", none, {{2, 3}, {3, 2}}) == "MatMul (a, b) -> (y)");
  CHECK(made("dot", none, {{2, 3, 4}, {4, 2}}) == "dot (a, b) -> (y)");
  CHECK(made("cast", {{"dtype", "int64"}}, {{2}}) == "Cast (a) -> (y) to=7");
  CHECK(made("sum", {{"keepdims", "True"}, {"axis", "()"}}, {{2}}) == "ReduceSum (a) -> (y)");
  CHECK(made("sum", {{"keepdims", "True"}, {"axis", "(0,)"}}, {{2}}) ==
        "sum (a) -> (y) keepdims=true axis=[0]");
  // MXNet's Reshape must not be taken for opkit's.
  CHECK(made("Reshape", {{"shape", "(-1,)"}}, {{2}}) == "mxnet.Reshape (a) -> (y) shape=[-1]");
  CHECK(made("Dropout", {{"p", "0.25"}}, {{2}}) == "mxnet.Dropout (a) -> (y) p=0.25");
  CHECK(Contains(ToMxnetJson(TextOf(One(OperatorDef("mxnet.Reshape"), {{2}}))), "\"Reshape\""));
  CHECK(made("my_op", {{"axes", "(1, 2)"}, {"n", 3}}, {{2}}) == "my_op (a) -> (y) axes=[1, 2] n=3");
}

TEST_CASE("a new node has the outputs that MXNet says") {
  const auto outputs = [](const std::string& op, const Json& attrs) {
    const Graph after = After(One(OperatorDef("Kept"), {{2, 4}}), [&](Json& json) {
      json["nodes"].push_back(
          {{"op", op}, {"name", "new"}, {"attrs", attrs}, {"inputs", {{0, 0, 0}}}});
      json["heads"][0] = {2, 0, 0};
    });
    const OperatorDef& node = after.node(after.Producer("y"));
    return StrCat(node.type(), " ", node.outputs().size());
  };
  CHECK(outputs("SliceChannel", {{"num_outputs", "2"}}) == "Split 2");
  CHECK(outputs("mine", {{"__ext_dtype__", "[0,6,-1]"}}) == "mine 3");
  CHECK(outputs("mine", {{"num_outputs", "many"}}) == "mine 1");
  CHECK(outputs("mine", {{"num_outputs", "-2"}}) == "mine 1");
  CHECK(outputs("where", Json::object()) == "where 1");
}

TEST_CASE("an operator on a constant that a library made is translated by the constant's shape") {
  const Graph graph = One(OperatorDef("Exp"), {{2, 3}});
  const auto after = [&](const Shape& weights) {
    const std::string text = TextOf(graph);
    Json json = Json::parse(ToMxnetJson(text));
    const size_t made = json["nodes"].size();
    json["nodes"].push_back({{"op", "null"}, {"name", "w"}, {"inputs", Json::array()}});
    json["nodes"].push_back({{"op", "FullyConnected"},
                             {"name", "new"},
                             {"attrs", {{"num_hidden", "4"}, {"no_bias", "True"}}},
                             {"inputs", {{0, 0, 0}, {made, 0, 0}}}});
    json["heads"][0][0] = made + 1;
    const std::vector<std::pair<std::string, Tensor>> constants = {
        {"w", Tensor(weights, DType::kFloat32)}};
    const Graph out = ReadSymbolJson(graph, FromMxnetJson(text, json.dump(), constants), constants);
    return out.node(out.Producer("y")).type();
  };
  CHECK(after({4, 3}) == "Gemm");
  CHECK(after({4, 3, 1}) == "FullyConnected");  // Gemm has no such weights
}

TEST_CASE("of a changed node only what the library changed is new") {
  Graph graph = One(OperatorDef("Conv")
                        .Arg("auto_pad", "NOTSET")
                        .Arg("strides", Ints{2, 2})
                        .Arg("kernel_shape", Ints{3, 3})
                        .Arg("dilations", Ints{1, 1}),
                    {{1, 4, 8, 8}, {6, 4, 3, 3}});
  const Graph after = After(graph, [](Json& json) {
    Json& attrs = json["nodes"].back()["attrs"];
    attrs["stride"] = "(1, 1)";
    attrs.erase("dilate");
    attrs["pad"] = "(1, 1)";
  });
  const Arguments& args = after.node(0).args();
  CHECK(after.node(0).type() == "Conv");
  CHECK(args.Get<Ints>("strides") == Ints{1, 1});
  CHECK(args.Get<Ints>("kernel_shape") == Ints{3, 3});
  CHECK(args.Get<std::string>("auto_pad") == "NOTSET");
  CHECK(args.Get<std::string>("pads") == "[1, 1, 1, 1]");  // no schema gives its type here
  CHECK(!args.Find("dilations"));
  CHECK(!args.Find("group"));  // it was left out before

  Graph own = One(OperatorDef("my_op").Arg("word", "(1, 2)").Arg("ints", Ints{1, 2}), {{2}});
  const Graph changed =
      After(own, [](Json& json) { json["nodes"].back()["attrs"]["__ext_extra_inputs__"] = "0"; });
  CHECK(changed.node(0).args().Get<std::string>("word") == "(1, 2)");
  CHECK(changed.node(0).args().Get<Ints>("ints") == Ints{1, 2});
  CHECK(changed.node(0).args().Get<std::string>("__ext_extra_inputs__") == "0");

  // Another operator under the old name.
  const Graph other =
      After(graph, [](Json& json) { json["nodes"].back()["op"] = "my_convolution"; });
  CHECK(other.node(0).type() == "my_convolution");
  CHECK(other.node(0).args().Get<std::string>("kernel") == "[3, 3]");
}

TEST_CASE("shapes behind a change are not relied on") {
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {2, 3});
  graph.AddInput("b", DType::kFloat32, {3, 2});
  graph.AddNode(OperatorDef("NamesTestSame", {"a"}, {"x"}).Name("n"));
  graph.AddNode(OperatorDef("NamesTestSame", {"x"}, {"y"}).Name("m"));
  graph.AddOutput("y");
  // A new node reads the output of the last one, and can be translated only if it has rank 2.
  const auto type = [&](const Change& change) {
    const Graph after = After(graph, [&](Json& json) {
      change(json["nodes"]);
      json["nodes"].push_back({{"op", "dot"}, {"name", "d"}, {"inputs", {{3, 0, 0}, {1, 0, 0}}}});
      json["heads"][0] = {4, 0, 0};
    });
    return after.node(after.Producer("y")).type();
  };
  CHECK(type([](Json&) {}) == "MatMul");
  CHECK(type([](Json& nodes) { nodes[2]["op"] = "mystery"; }) == "dot");
  CHECK(type([](Json& nodes) { nodes[2]["attrs"]["k"] = "2"; }) == "dot");
  CHECK(type([](Json& nodes) { nodes[3]["inputs"][0][0] = 0; }) == "dot");
  CHECK(type([](Json& nodes) { nodes[3]["inputs"].push_back({0, 0, 0}); }) == "dot");
}

TEST_CASE("an answer in another order, without what MXNet's graphs lack, is read") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2});
  graph.AddInput("Y", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Exp", {"X"}, {"A"}).Name("a"));
  graph.AddNode(OperatorDef("Log", {"Y"}, {"B"}).Name("b").ControlInput("a"));
  graph.AddOutput("A");
  graph.AddOutput("B");
  const Graph after = After(graph, [](Json& json) {
    Json& nodes = json["nodes"];
    nodes = {nodes[1], nodes[3], nodes[0], nodes[2]};
    nodes[1]["inputs"] = {{0, 0, 0}};
    nodes[3]["inputs"] = {{2, 0, 0}};
    json["heads"] = {{3, 0, 0}, {1, 0, 0}};
    for (Json& node : nodes) node["attrs"]["__ext_shape__"] = "[[9]]";  // a pass may leave old ones
    json["arg_nodes"] = {0, 2};
  });
  Check(after, UnknownOperators::kAllowed);
  CHECK(after.node(after.Producer("B")).control_inputs() == Strings{"a"});
  CHECK(after.node(after.Producer("B")).args().size() == 0);
  CHECK(after.node(after.Producer("A")).type() == "Exp");
  // The node that the other one waited for is gone.
  const Graph less = After(graph, [](Json& json) {
    json["nodes"].erase(2);
    json["heads"] = {{0, 0, 0}, {2, 0, 0}};
  });
  Check(less, UnknownOperators::kAllowed);
  CHECK(less.node(less.Producer("B")).control_inputs().empty());
}

TEST_CASE("a text that is no graph is refused, and mistakes stay for the reader to report") {
  const Graph graph = One(OperatorDef("Exp"), {{2}});
  const std::string text = TextOf(graph);
  CHECK(Contains(ErrorOf([&] { ToMxnetJson("{"); }).message(), "the document is not JSON"));
  CHECK(Contains(ErrorOf([&] { ToMxnetJson("{}"); }).message(), "needs the member 'nodes'"));
  CHECK(Contains(ErrorOf([&] { FromMxnetJson(text, "json(Error)"); }).message(), "is not JSON"));
  const auto wrong = [&](const Change& change) {
    return ErrorOf([&] { After(graph, change); }).message();
  };
  CHECK(Contains(wrong([](Json& j) { j = 3; }), "expected an object"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"] = "x"; }), "nodes: expected an array"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1] = 3; }), "nodes[1]: expected an object"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1]["attrs"] = "x"; }), "nodes[1].attrs: expected"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1]["inputs"] = 1; }), "nodes[1].inputs: expected"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1]["inputs"][0] = "x"; }), "nodes[1].inputs[0]"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1]["inputs"][0][0] = 7; }), "there is no node 7"));
  CHECK(Contains(wrong([](Json& j) { j["nodes"][1].erase("op"); }), "needs the member 'op'"));
  CHECK(Contains(wrong([](Json& j) { j["mine"] = 1; }), "has no member 'mine'"));
}

TEST_CASE("an answer that was cut or changed is read whole or refused") {
  Graph graph = One(OperatorDef("Conv").Arg("strides", Ints{2}).Arg("pads", Ints{1, 1}),
                    {{1, 4, 8}, {6, 4, 3}, {6}});
  graph.AddNode(OperatorDef("MatMul", {"y", "b"}, {"z"}).Name("m").ControlInput("n"));
  graph.AddNode(OperatorDef("Reshape", {"z", "c"}, {"w"}).Name("r"));
  graph.AddOutput("w");
  const std::string text = TextOf(graph), whole = ToMxnetJson(text);
  const std::string pieces = "[]{},:0123\"-nul()";
  int read = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    std::string answer = whole;
    for (uint64_t changes = 1 + random.Next() % 2; changes > 0; --changes)
      answer[random.Next() % answer.size()] = pieces[random.Next() % pieces.size()];
    try {
      const Graph after = ReadSymbolJson(graph, FromMxnetJson(text, answer));
      CHECK(after.outputs() == graph.outputs());
      ++read;
    } catch (const Error& error) {
      CHECK(error.what()[0] != '\0');
      ++refused;
    }
  }
  CHECK(read > 50);
  CHECK(refused > 300);
}

TEST_CASE("a split into equal parts is MXNet's, one with a smaller last part is not") {
  const auto seen = [](const char* last) {
    const std::string text = StrCat(R"({"nodes": [
      {"op": "null", "name": "a", "attrs": {"isArg": "True", "isAux": "False"}, "inputs": [],
       "dtypes": ["float32"], "shapes": [[2, 4]]},
      {"op": "Split", "name": "n", "attrs": {"axis": "1", "num_outputs": "2"},
       "inputs": [[0, 0, 0]], "dtypes": ["float32", "float32"], "shapes": [[2, 2], )",
                                    last, R"(]}], "arg_nodes": [0], "heads": [[1, 0, 0]]})");
    const std::string sent = ToMxnetJson(text);
    CHECK(Json::parse(FromMxnetJson(text, sent))["nodes"][1]["op"] == "Split");
    return Seen(Json::parse(sent));
  };
  CHECK(seen("[2, 2]") == "SliceChannel {axis=1 num_outputs=2 squeeze_axis=False}");
  CHECK(seen("[2, 1]") == "Split {axis=1 num_outputs=2}");
  CHECK(seen("null") == "Split {axis=1 num_outputs=2}");
}

}  // namespace symbol_names_test
