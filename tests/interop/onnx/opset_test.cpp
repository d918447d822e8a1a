// Nodes of every opset become what opkit's operators are: those of opset 21.
#include <doctest/doctest.h>

#include <cfloat>

#include "interop/any_operator.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"

namespace opset_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using onnx_bytes::FloatTensor;
using OnnxGraph = onnx_bytes::Graph;

namespace {

// Copies its input; says the shape, so that rules which ask for the rank learn it.
class OnnxTestSameOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(OnnxTestSame).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(OnnxTestSame, OnnxTestSameOp);

opkit::Graph Parse(const OnnxGraph& graph, int64_t opset) {
  return ParseOnnxModel(graph.Model(opset), AnyOperator()).graph;
}
// One node that reads x [2, 3, 4] and makes y.
OnnxGraph One(const std::string& type, const std::vector<AttributeProto>& attributes,
              Strings more = {}, Strings outputs = {"y"}, int dtype = onnx_bytes::kFloat) {
  Strings inputs{"x"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  OnnxGraph graph;
  graph.Input("x", {2, 3, 4}, dtype);
  for (const std::string& name : more)
    if (!name.empty()) graph.UntypedInput(name);
  return graph.Node(type, inputs, outputs, attributes, "node").Output("y");
}
std::string What(const OnnxGraph& graph, int64_t opset, bool any = true) {
  return ErrorOf([&] { ParseOnnxModel(graph.Model(opset), any ? AnyOperator() : OnnxOptions()); })
      .what();
}
// Input i of the graph's first node, a constant; empty where the node has none.
template <class T>
std::vector<T> Constant(const opkit::Graph& graph, size_t i) {
  const Strings& inputs = graph.node(0).inputs();
  if (i >= inputs.size() || inputs[i].empty()) return {};
  const Tensor* constant = graph.FindConstant(inputs[i]);
  REQUIRE(constant != nullptr);
  return constant->ToVector<T>();
}

}  // namespace

TEST_CASE("Axes that were attributes are inputs") {
  for (const char* type : {"Squeeze", "Unsqueeze", "ReduceSum"}) {
    CAPTURE(type);
    const opkit::Graph old = Parse(One(type, {AttributeProto::Ints("axes", {1, 2})}), 12);
    CHECK(Constant<int64_t>(old, 1) == Ints{1, 2});
    CHECK(old.constants()[0].name == "y/axes");
    CHECK(!old.node(0).args().Has("axes"));
    CHECK(old.node(0).name() == "node");
    const opkit::Graph current = Parse(One(type, {}, {"axes"}), 13);
    CHECK(current.node(0).inputs() == Strings{"x", "axes"});
  }
  for (const char* type : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                           "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"}) {
    CAPTURE(type);
    const opkit::Graph old = Parse(
        One(type, {AttributeProto::Ints("axes", {0}), AttributeProto::Int("keepdims", 0)}), 17);
    CHECK(Constant<int64_t>(old, 1) == Ints{0});
    CHECK(old.node(0).args().Get<int64_t>("keepdims", 1) == 0);
    CHECK(Parse(One(type, {}), 17).node(0).inputs() == Strings{"x"});
    CHECK(Parse(One(type, {AttributeProto::Ints("axes", {})}), 17).node(0).inputs() ==
          Strings{"x"});
  }
}

TEST_CASE("A name that is taken gets a number") {
  OnnxGraph graph = One("Squeeze", {AttributeProto::Ints("axes", {0})});
  graph.Input("y/axes").Node("Op", {"y/axes_1"}, {"z"}).Input("y/axes_1");
  CHECK(Parse(graph, 11).node(0).inputs()[1] == "y/axes_2");
}

TEST_CASE("Clip and Pad: numbers became scalars of the input's type") {
  const opkit::Graph both =
      Parse(One("Clip", {AttributeProto::Float("min", -1), AttributeProto::Float("max", 6)}), 6);
  CHECK(Constant<float>(both, 1) == Floats{-1});
  CHECK(Constant<float>(both, 2) == Floats{6});
  CHECK(both.FindConstant("y/min")->shape() == Shape{});
  const opkit::Graph upper = Parse(One("Clip", {AttributeProto::Float("max", 6)}), 10);
  CHECK(upper.node(0).inputs() == Strings{"x", "y/min", "y/max"});
  CHECK(Constant<float>(upper, 1) == Floats{-FLT_MAX});  // what it was where it is left out
  CHECK(Constant<float>(Parse(One("Clip", {}), 10), 2) == Floats{FLT_MAX});
  CHECK(Parse(One("Clip", {AttributeProto::Float("max", 6)}, {}, {"y"}, onnx_bytes::kDouble), 10)
            .FindConstant("y/max")
            ->dtype() == DType::kFloat64);
  const opkit::Graph half = Parse(
      One("Clip", {AttributeProto::Float("min", -FLT_MAX)}, {}, {"y"}, onnx_bytes::kFloat16), 10);
  CHECK(half.FindConstant("y/min")->data<float16>()[0].bits == 0xfc00);
  CHECK(Parse(One("Clip", {}, {"lo", "hi"}), 11).node(0).inputs() == Strings{"x", "lo", "hi"});

  const opkit::Graph pad = Parse(One("Pad", {AttributeProto::Ints("pads", {0, 0, 1, 0, 0, 1}),
                                             AttributeProto::Float("value", 2.5f),
                                             AttributeProto::String("mode", "constant")}),
                                 10);
  CHECK(Constant<int64_t>(pad, 1) == Ints{0, 0, 1, 0, 0, 1});
  CHECK(Constant<float>(pad, 2) == Floats{2.5f});
  CHECK(pad.node(0).args().Get<std::string>("mode", "") == "constant");
  CHECK(Parse(One("Pad", {}, {"pads"}), 11).node(0).inputs() == Strings{"x", "pads"});
}

TEST_CASE("A branch knows a value's type from the operators of the graph around it") {
  const auto clip = [](const char* output) {
    return OnnxGraph()
        .Node("Clip", {"t"}, {output}, {AttributeProto::Float("min", 0)})
        .Output(output)
        .bytes;
  };
  const std::string between = OnnxGraph()
                                  .Node("If", {"c"}, {"z"},
                                        {AttributeProto::Graph("then_branch", clip("a")),
                                         AttributeProto::Graph("else_branch", clip("b"))})
                                  .Output("z")
                                  .bytes;
  const opkit::Graph graph = Parse(OnnxGraph()
                                       .Input("x", {2}, onnx_bytes::kDouble)
                                       .Input("c", {}, onnx_bytes::kBool)
                                       .Node("OnnxTestSame", {"x"}, {"t"})
                                       .Node("If", {"c"}, {"y"},
                                             {AttributeProto::Graph("then_branch", clip("m")),
                                              AttributeProto::Graph("else_branch", between)})
                                       .Output("y"),
                                   9);
  const auto branch_of = [](const opkit::Graph& around, int node, const char* name) {
    return SubgraphOf(around.node(node), name);
  };
  const auto direct = branch_of(graph, 1, "then_branch");
  CHECK(direct->FindInput("t")->info.dtype == DType::kFloat64);
  CHECK(!direct->FindInput("t")->info.shape.has_rank());
  CHECK(Constant<double>(*direct, 1) == std::vector<double>{0});
  const auto inner = branch_of(*branch_of(graph, 1, "else_branch"), 0, "else_branch");
  CHECK(inner->FindInput("t")->info.dtype == DType::kFloat64);
  CHECK(Constant<double>(*inner, 1) == std::vector<double>{0});
}

TEST_CASE("Slice, Split and TopK: attributes became inputs") {
  const opkit::Graph slice = Parse(
      One("Slice", {AttributeProto::Ints("starts", {1}), AttributeProto::Ints("ends", {INT64_MAX}),
                    AttributeProto::Ints("axes", {2})}),
      9);
  CHECK(Constant<int64_t>(slice, 1) == Ints{1});
  CHECK(Constant<int64_t>(slice, 2) == Ints{INT64_MAX});
  CHECK(Constant<int64_t>(slice, 3) == Ints{2});
  CHECK(slice.node(0).args().size() == 0);
  CHECK(What(One("Slice", {AttributeProto::Ints("starts", {1})}), 9) ==
        "node 'node' (Slice): it needs the attribute 'ends'");

  const opkit::Graph split =
      Parse(One("Split", {AttributeProto::Ints("split", {1, 2}), AttributeProto::Int("axis", 1)},
                {}, {"y", "z"}),
            11);
  CHECK(Constant<int64_t>(split, 1) == Ints{1, 2});
  CHECK(!split.node(0).args().Has("num_outputs"));
  for (const int64_t opset : {11, 13, 17})
    CHECK(Parse(One("Split", {}, {}, {"y", "z", "u"}), opset)
              .node(0)
              .args()
              .Get<int64_t>("num_outputs", 0) == 3);
  CHECK(!Parse(One("Split", {}, {"parts"}, {"y", "z"}), 13).node(0).args().Has("num_outputs"));

  const opkit::Graph top = Parse(One("TopK", {AttributeProto::Int("k", 3)}, {}, {"y", "i"}), 9);
  CHECK(Constant<int64_t>(top, 1) == Ints{3});
  CHECK(Parse(One("TopK", {}, {"k"}, {"y", "i"}), 10).node(0).inputs() == Strings{"x", "k"});
  CHECK(Contains(What(One("TopK", {}), 9), "it needs the attribute 'k'"));
}

TEST_CASE("Dropout and BatchNormalization lose the outputs of training") {
  const opkit::Graph drop = Parse(One("Dropout", {AttributeProto::Float("ratio", 0.5f)}), 10);
  CHECK(drop.node(0).args().size() == 0);
  CHECK(drop.node(0).inputs() == Strings{"x"});
  CHECK(Parse(One("Dropout", {}, {}, {"y", "m"}), 9).node(0).outputs() == Strings{"y"});

  const Strings statistics{"s", "b", "m", "v"};
  const Strings outputs{"y", "m2", "v2", "m3", "v3"};
  const opkit::Graph norm =
      Parse(One("BatchNormalization",
                {AttributeProto::Int("spatial", 1), AttributeProto::Float("epsilon", 1e-3f)},
                statistics, outputs),
            8);
  CHECK(norm.node(0).outputs() == Strings{"y"});
  CHECK(!norm.node(0).args().Has("spatial"));
  CHECK(norm.node(0).args().Get<float>("epsilon", 0.f) == 1e-3f);
  const OnnxGraph activations =
      One("BatchNormalization", {AttributeProto::Int("spatial", 0)}, statistics, outputs);
  CHECK(Parse(activations, 8).node(0).args().Get<int64_t>("spatial", 1) == 0);
  CHECK(Contains(What(activations, 9),
                 "node 'node' (BatchNormalization): statistics for every activation"));
  OnnxGraph read = One("BatchNormalization", {}, statistics, outputs);
  read.Output("v2");
  CHECK(Contains(What(read, 9), "its output 'v2' is one of training, and is read"));
  CHECK(Parse(read, 14).node(0).outputs().size() == 5);
}

TEST_CASE("A mask of Dropout that is read is cast to the type of the data before opset 10") {
  const auto drop = [](const char* data, bool says_type) {
    OnnxGraph graph = OnnxGraph()
                          .Input("x", {2}, onnx_bytes::kDouble)
                          .Node("OnnxTestSame", {"x"}, {"known"})
                          .Node("OnnxTestUnknown", {"x"}, {"unknown"})
                          .Node("Dropout", {data}, {"y", "m"}, {}, "node")
                          .Output("y");
    return says_type ? graph.Output("m", {2}, onnx_bytes::kFloat16) : graph.Output("m");
  };
  const opkit::Graph graph = Parse(drop("known", false), 9);
  REQUIRE(graph.num_nodes() == 4);
  const OperatorDef &dropout = graph.node(2), &cast = graph.node(3);
  CHECK(dropout.name() == "node");
  CHECK(dropout.outputs() == Strings{"y", cast.inputs()[0]});
  CHECK(cast.type() == "Cast");
  CHECK(cast.outputs() == Strings{"m"});
  CHECK(cast.args().Get<int64_t>("to", 0) == onnx_bytes::kDouble);
  CHECK(Parse(drop("known", false), 10).num_nodes() == 3);
  CHECK(Parse(drop("unknown", true), 9).node(3).args().Get<int64_t>("to", 0) ==
        onnx_bytes::kFloat16);
  CHECK(What(drop("unknown", false), 9) ==
        "node 'node' (Dropout): the type of its data must be known, and neither the file nor an "
        "operator gives it");
}

TEST_CASE("Softmax before opset 13 was over all axes from one on") {
  // The last axis, by any name, and axes of 1 behind it: the same.
  CHECK(Parse(One("Softmax", {AttributeProto::Int("axis", -1)}), 11).num_nodes() == 1);
  CHECK(Parse(One("Softmax", {AttributeProto::Int("axis", 2)}), 11).num_nodes() == 1);
  CHECK(Parse(One("Softmax", {AttributeProto::Int("axis", -2)}), 13).num_nodes() == 1);
  const auto on = [](const std::vector<onnx_bytes::Extent>& extents, bool output = false) {
    OnnxGraph graph;
    graph.UntypedInput("unknown");
    graph.Input("x", extents);
    graph.Node("LogSoftmax", {output ? "unknown" : "x"}, {"y"});
    if (output) return graph.Output("y", extents);
    return graph.Output("y");
  };
  const opkit::Graph ones = Parse(on({"N", 1000, 1, 1}), 9);
  REQUIRE(ones.num_nodes() == 1);
  CHECK(ones.node(0).args().Get<int64_t>("axis", 0) == 1);  // what was the default, not what is
  CHECK(Parse(on({"N", "C"}), 9).num_nodes() == 1);
  // The reader ignores the declared shape of an intermediate value, which may be stale.
  CHECK(Parse(on({"N", "C"}, true), 9).num_nodes() == 4);
  CHECK(Parse(on({"N", "C", "H"}), 9).num_nodes() == 4);
  CHECK(Parse(on({"N"}), 9).num_nodes() == 4);

  const opkit::Graph whole = Parse(One("Softmax", {AttributeProto::Int("axis", 1)}), 11);
  REQUIRE(whole.num_nodes() == 4);
  CHECK(whole.node(0).type() == "Shape");
  CHECK(whole.node(1).type() == "Flatten");
  CHECK(whole.node(1).args().Get<int64_t>("axis", 0) == 1);
  CHECK(whole.node(2).type() == "Softmax");
  CHECK(whole.node(2).name() == "node");
  CHECK(whole.node(2).inputs() == whole.node(1).outputs());
  CHECK(whole.node(2).args().Get<int64_t>("axis", 0) == 1);
  CHECK(whole.node(3).type() == "Reshape");
  CHECK(whole.node(3).inputs() == Strings{whole.node(2).outputs()[0], whole.node(0).outputs()[0]});
  CHECK(whole.node(3).outputs() == Strings{"y"});
  CHECK(whole.node(3).args().Get<int64_t>("allowzero", 0) == 1);
}

TEST_CASE("A rank that the file does not declare comes from the operators before") {
  const auto chain = [](const char* type) {
    return Parse(OnnxGraph()
                     .Input("x", {"N", "C"})
                     .Node(type, {"x"}, {"a"})
                     .Node("OnnxTestSame", {"a"}, {"b"})
                     .Node("Softmax", {"b"}, {"y"})
                     .Output("y"),
                 9)
        .num_nodes();
  };
  CHECK(chain("OnnxTestSame") == 3);
  CHECK(chain("OnnxTestUnknown") == 6);
}

TEST_CASE("Declared shapes of values before a Softmax may be stale, and are ignored") {
  const auto stale = [](const char* type, const std::vector<onnx_bytes::Extent>& declared,
                        const char* of = "v") {
    return Parse(OnnxGraph()
                     .Input("x", {2, 3, 4})
                     .ValueInfo(of, declared)
                     .Node("OnnxTestSame", {"x"}, {"v"})
                     .Node(type, {"v"}, {"w"}, {AttributeProto::Int("axis", 1)})
                     .Node("Neg", {"w"}, {"y"})
                     .Output("y"),
                 11)
        .num_nodes();
  };
  // Believed, the node would stay alone: the extent behind the axis would be 1, or none there.
  for (const char* type : {"Softmax", "LogSoftmax", "Hardmax"}) {
    CAPTURE(type);
    CHECK(stale(type, {2, 3, 1}) == 6);
    CHECK(stale(type, {2, 3}) == 6);
    CHECK(stale(type, {2, 3, 1}, "w") == 6);
    CHECK(stale(type, {2, 3, 4}) == 6);
  }
}

TEST_CASE("GridSample, RoiAlign and DFT have the attributes and inputs of opset 21") {
  const auto mode = [](const char* given, int64_t opset) {
    return Parse(One("GridSample", {AttributeProto::String("mode", given)}, {"g"}), opset)
        .node(0)
        .args()
        .Get<std::string>("mode", "");
  };
  CHECK(mode("bilinear", 16) == "linear");
  CHECK(mode("bicubic", 19) == "cubic");
  CHECK(mode("nearest", 16) == "nearest");
  CHECK(mode("cubic", 20) == "cubic");
  CHECK(Parse(One("GridSample", {}, {"g"}), 16).node(0).args().size() == 0);

  constexpr const char* kPixels = "coordinate_transformation_mode";
  CHECK(Parse(One("RoiAlign", {}), 10).node(0).args().Get<std::string>(kPixels) ==
        "output_half_pixel");
  CHECK(Parse(One("RoiAlign", {}), 16).node(0).args().size() == 0);

  const auto dft = [](const std::vector<AttributeProto>& attributes) {
    return Parse(One("DFT", attributes), 17);
  };
  const opkit::Graph first = dft({});
  CHECK(first.node(0).inputs().size() == 3);
  CHECK(first.node(0).inputs()[1].empty());
  CHECK(Constant<int64_t>(first, 2) == Ints{1});
  const opkit::Graph other =
      dft({AttributeProto::Int("axis", -2), AttributeProto::Int("inverse", 1)});
  CHECK(Constant<int64_t>(other, 2) == Ints{-2});
  CHECK(!other.node(0).args().Has("axis"));
  CHECK(other.node(0).args().Has("inverse"));
}

TEST_CASE("Upsample and Resize of opset 10 are Resize with fixed rules") {
  const auto check = [](const opkit::Graph& graph) {
    const OperatorDef& node = graph.node(0);
    CHECK(node.type() == "Resize");
    REQUIRE(node.inputs().size() == 3);
    CHECK(node.inputs()[1].empty());
    CHECK(node.args().Get<std::string>("coordinate_transformation_mode", "") == "asymmetric");
    CHECK(node.args().Get<std::string>("nearest_mode", "") == "simple");
    CHECK(node.args().Get<std::string>("mode", "") == "linear");
  };
  const AttributeProto mode = AttributeProto::String("mode", "linear");
  const opkit::Graph oldest =
      Parse(One("Upsample", {mode, AttributeProto::Floats("scales", {1, 2, 3})}), 7);
  check(oldest);
  CHECK(Constant<float>(oldest, 2) == Floats{1, 2, 3});
  CHECK(!oldest.node(0).args().Has("scales"));
  check(Parse(One("Upsample", {mode}, {"scales"}), 9));
  check(Parse(One("Resize", {mode}, {"scales"}), 10));
  for (const Floats& scales : {Floats{1, 2, 2}, Floats{1, 0.5f, 1}, Floats{1, 0.5f, 2}})
    check(Parse(OnnxGraph()
                    .Input("x")
                    .Initializer(FloatTensor("s", {3}, scales))
                    .Node("Resize", {"x", "s"}, {"y"}, {mode})
                    .Output("y"),
                10));
  CHECK(What(One("Resize", {AttributeProto::String("nearest_mode", "simple")}, {"", "scales"}),
             11) == "node 'node' (Resize): ONNX has no nearest_mode 'simple'");
}

TEST_CASE("Resize leaves out inputs without effect") {
  const auto inputs = [](const Strings& names, int64_t opset, const char* mode = "half_pixel") {
    OnnxGraph graph;
    graph.Input("x").Initializer(FloatTensor("empty", {0}, {}));
    graph.Input("roi").Input("scales").Input("sizes", {}, onnx_bytes::kInt64);
    graph.Node("Resize", names, {"y"},
               {AttributeProto::String("coordinate_transformation_mode", mode)});
    return Parse(graph.Output("y"), opset).node(0).inputs();
  };
  CHECK(inputs({"x", "roi", "scales"}, 11) == Strings{"x", "", "scales"});
  CHECK(inputs({"x", "empty", "scales", "sizes"}, 11) == Strings{"x", "", "", "sizes"});
  CHECK(inputs({"x", "", "empty", "sizes"}, 13) == Strings{"x", "", "", "sizes"});
  CHECK(inputs({"x", "", "scales", "empty"}, 19) == Strings{"x", "", "scales", ""});
  CHECK(inputs({"x", "roi", "scales"}, 19, "tf_crop_and_resize") == Strings{"x", "roi", "scales"});
}

TEST_CASE("Resize of opset 11 keeps the coordinates that ONNX dropped later") {
  const OperatorDef node =
      Parse(One("Resize",
                {AttributeProto::String("coordinate_transformation_mode", "tf_half_pixel_for_nn")},
                {"roi", "scales"}),
            11)
          .node(0);
  CHECK(node.args().Get<std::string>("coordinate_transformation_mode", "") ==
        "tf_half_pixel_for_nn");
}

TEST_CASE("Scatter is ScatterElements") {
  CHECK(Parse(One("Scatter", {AttributeProto::Int("axis", 1)}, {"i", "u"}), 9).node(0).type() ==
        "ScatterElements");
}

TEST_CASE("A value of another type than the old operator has is an Error that names it") {
  CHECK(Contains(What(One("Squeeze", {AttributeProto::Float("axes", 1)}), 9),
                 "node 'node' (Squeeze): argument 'axes'"));
}

TEST_CASE("Opsets that are not read are Errors that name them") {
  CHECK(What(One("Op", {}), 29) ==
        "opset 29 of ONNX is not one of those that opkit reads, 7 to 28; convert the model with "
        "onnx.version_converter");
  CHECK(Contains(What(One("Op", {}), 0), "opset 0 of ONNX"));
  CHECK(What(One("Op", {}), -1) ==
        "node 'node' (Op): the model gives no version of ONNX's operators (opset_import)");
  // Before 7 only operators that were the same then.
  CHECK(Parse(One("Not", {}), 1).node(0).type() == "Not");
  CHECK(Parse(One("RandomNormalLike", {}), 1).node(0).type() == "RandomNormalLike");
  CHECK(Parse(One("GlobalLpPool", {}), 2).node(0).type() == "GlobalLpPool");
  CHECK(Parse(One("Relu", {}), 6).node(0).type() == "Relu");
  CHECK(Parse(One("Selu", {}), 6).node(0).type() == "Selu");
  CHECK(Parse(One("Softsign", {}), 1).node(0).type() == "Softsign");
  CHECK(Contains(What(One("Selu", {}), 5), "operator Selu of opset 5 is too old"));
  CHECK(Contains(What(One("Add", {}), 6),
                 "node 'node' (Add): operator Add of opset 6 is too old: opkit reads opsets 7 to "
                 "28"));
  CHECK(Contains(What(One("Relu", {}), 5), "operator Relu of opset 5 is too old"));
  // Nodes of other domains have their own.
  CHECK(ParseOnnxModel(OnnxGraph().Node("Op", {}, {"y"}, {}, "", "other").Output("y").Model(-1),
                       AnyOperator())
            .graph.num_nodes() == 1);
}

TEST_CASE("GroupNormalization before opset 21 had a scale and a bias for each group") {
  const auto groups = AttributeProto::Int("num_groups", 3);
  CHECK(Parse(One("GroupNormalization", {groups}, {"scale", "bias"}), 21).num_nodes() == 1);
  const opkit::Graph graph = Parse(One("GroupNormalization", {groups}, {"scale", "bias"}), 20);
  REQUIRE(graph.num_nodes() == 9);
  CHECK(graph.node(0).type() == "Shape");  // of the channels alone
  CHECK(graph.node(0).args().Get<int64_t>("start", 0) == 1);
  CHECK(graph.node(0).args().Get<int64_t>("end", 0) == 2);
  CHECK(graph.node(1).type() == "Div");
  CHECK(graph.FindConstant(graph.node(1).inputs()[1])->ToVector<int64_t>() == Ints{3});
  const std::string& each = graph.node(1).outputs()[0];
  const opkit::OperatorDef& norm = graph.node(8);
  CHECK(norm.type() == "GroupNormalization");
  CHECK(norm.name() == "node");
  for (int i = 1; i < 3; ++i) {
    const opkit::OperatorDef &column = graph.node(3 * i - 1), &repeated = graph.node(3 * i);
    CHECK(column.type() == "Unsqueeze");
    CHECK(column.inputs()[0] == (i == 1 ? "scale" : "bias"));
    CHECK(repeated.type() == "Expand");
    CHECK(repeated.inputs() == Strings{column.outputs()[0], each});
    CHECK(graph.node(3 * i + 1).type() == "Reshape");
    CHECK(norm.inputs()[static_cast<size_t>(i)] == graph.node(3 * i + 1).outputs()[0]);
  }
  CHECK(Contains(What(One("GroupNormalization", {}, {"scale", "bias"}), 20), "'num_groups'"));
}

TEST_CASE("Scan of opset 8 is read unless its sequences differ in length") {
  CHECK(Contains(What(One("Scan", {}), 8, false), "its input 'sequence_lens' gives"));
}

TEST_CASE("Attributes newer than opset 21 are refused unless they change nothing") {
  const Graph cast = Parse(
      One("Cast", {AttributeProto::Int("to", 24), AttributeProto::String("round_mode", "down")}),
      25);
  CHECK(cast.node(0).args().Get<std::string>("round_mode") == "down");
  CHECK(Parse(One("Range", {AttributeProto::Int("stash_type", 1)}), 27).node(0).args().size() == 0);
  CHECK(What(One("Range", {AttributeProto::Int("stash_type", 10)}), 27, false) ==
        "node 'node' (Range): operator Range of opset 27 has the attribute 'stash_type', which "
        "opkit's operators lack: they are those of opset 21");
  CHECK(Contains(What(One("QuantizeLinear", {AttributeProto::Int("precision", 10)}), 23, false),
                 "has the attribute 'precision'"));
  for (const int64_t precision : {0, 1})
    CHECK(Parse(One("QuantizeLinear", {AttributeProto::Int("precision", precision)}), 28)
              .node(0)
              .args()
              .size() == 0);
  CHECK(Parse(One("Add", {}, {"b"}), 27).node(0).inputs() == Strings{"x", "b"});
}

}  // namespace opset_test
