// MergeQuantizedNodes: operators between DequantizeLinear and QuantizeLinear become operators on
// integers, and give the same results.
#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/passes/quantized_nodes.hpp"
#include "support/tensors.hpp"

namespace quantized_passes_test { namespace {

using namespace opkit;

Tensor Bytes(Shape shape, int seed) {
  Tensor out(std::move(shape), DType::kInt8);
  std::mt19937 engine(static_cast<unsigned>(seed));
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<int8_t>()[i] = static_cast<int8_t>(engine() % 255 - 127);
  return out;
}
OperatorDef Dequantize(const char* x, const char* scale, const char* zero, const char* to) {
  return OperatorDef("DequantizeLinear", {x, scale, zero}, {to});
}
OperatorDef Quantize(const char* x, const char* to, const char* zero = "zero") {
  return OperatorDef("QuantizeLinear", {x, "y_scale", zero}, {to});
}
// The input is xq, images [2, 4, 5, 5] or rows [3, 4] of uint8.
struct Model {
  Graph graph;

  explicit Model(Shape x) {
    graph.AddInput("xq", DType::kUInt8, x);
    graph.AddConstant("x_scale", Tensor::Scalar(0.02f));
    graph.AddConstant("x_zero", Tensor::Scalar<uint8_t>(120));
    graph.AddConstant("y_scale", Tensor::Scalar(0.07f));
    graph.AddConstant("zero", Tensor::Scalar<uint8_t>(0));
    graph.AddConstant("middle", Tensor::Scalar<uint8_t>(128));
    graph.AddConstant("w_scale", Tensor::Scalar(0.01f));
    graph.AddConstant("scales", Vector({0.01f, 0.02f, 0.03f}));
    graph.AddConstant("kernels", Bytes({3, 4, 3, 3}, 1));
    graph.AddConstant("weights", Bytes({4, 3}, 2));
    graph.AddConstant("turned", Bytes({3, 4}, 3));
    graph.AddConstant("bias", Vector<int32_t>({1000, -2000, 3}));
    graph.AddConstant("bias_scale", Vector({0.02f * 0.01f, 0.02f * 0.02f, 0.02f * 0.03f}));
    graph.AddConstant("floats", Vector({0.5f, -1, 2}));
    graph.AddConstant("six", Tensor::Scalar(6.f));
    graph.AddConstant("twenty", Tensor::Scalar(20.f));
    graph.AddConstant("least", Tensor::Scalar(0.f));
    graph.AddNode(Dequantize("xq", "x_scale", "x_zero", "x"));
  }
  Model& Add(OperatorDef node) {
    graph.AddNode(std::move(node));
    return *this;
  }
  Model& AddWeights(const char* from, const char* scale, int64_t axis) {
    return Add(OperatorDef("DequantizeLinear", {from, scale}, {"w"}, {{"axis", axis}}));
  }
  Model& Returns(const char* output) {
    graph.AddOutput(output);
    return *this;
  }
};
OperatorDef Conv(std::vector<std::string> inputs) {
  return OperatorDef("Conv", std::move(inputs), {"h"}, {{"pads", std::vector<int64_t>(4, 1)}});
}
std::string Operators(const Graph& graph) {
  std::string text;
  for (const OperatorDef& node : graph.nodes())
    text += (text.empty() ? "" : " ") + node.type() + ">" + node.outputs()[0];
  return text;
}
Tensor Run(const Graph& graph) {
  const PassList none;
  Tensor x(graph.inputs()[0].info.shape.ToShape(), DType::kUInt8);
  std::mt19937 engine(7);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(engine());
  return Executor(Compile(graph, {.threads = 1, .passes = &none})).Run({{"xq", x}})[0];
}
// Checks the operators after the pass and, if something changes, that numbers of 8 bits are at most
// one unit apart, and floats by little.
void CheckMerges(const Model& model, const std::string& after) {
  const Graph merged = MergeQuantizedNodes(model.graph);
  Check(merged);
  CHECK(Operators(merged) == after);
  CHECK(Operators(MergeQuantizedNodes(merged)) == after);
  const Tensor expected = Run(model.graph), found = Run(merged);
  REQUIRE(found.dtype() == expected.dtype());
  REQUIRE(found.shape() == expected.shape());
  const bool is_float = found.dtype() == DType::kFloat32;
  double largest = 0, apart = 0;
  for (int64_t i = 0; i < found.numel(); ++i) {
    const double a = detail::GetNumber(found, i), b = detail::GetNumber(expected, i);
    largest = (std::max)(largest, std::abs(b));
    apart = (std::max)(apart, std::abs(a - b));
  }
  CHECK(largest > 1);
  CHECK(apart <= (is_float ? 1e-5 * largest : 1));
}

TEST_CASE("A convolution between integers becomes QLinearConv") {
  const Shape images{2, 4, 5, 5};
  CheckMerges(Model(images)
                  .AddWeights("kernels", "scales", 0)
                  .Add(Conv({"x", "w"}))
                  .Add(Quantize("h", "y", "middle"))
                  .Returns("y"),
              "QLinearConv>y");
  const Model with_bias =
      Model(images)
          .AddWeights("kernels", "scales", 0)
          .Add(OperatorDef("DequantizeLinear", {"bias", "bias_scale"}, {"b"}, {{"axis", 0}}))
          .Add(Conv({"x", "w", "b"}))
          .Add(Quantize("h", "y", "middle"))
          .Returns("y");
  CheckMerges(with_bias, "QLinearConv>y");
  // The steps of the bias are those of its file.
  const Graph merged = MergeQuantizedNodes(with_bias.graph);
  CHECK(merged.FindConstant(merged.nodes()[0].inputs()[8])->ToVector<int32_t>() ==
        std::vector<int32_t>{1000, -2000, 3});
  CHECK_FALSE(merged.IsConstant("bias"));
  CheckMerges(Model(images)
                  .AddWeights("kernels", "w_scale", 1)
                  .Add(Conv({"x", "w", "floats"}))
                  .Add(OperatorDef("Relu", {"h"}, {"r"}))
                  .Add(Quantize("r", "y"))
                  .Returns("y"),
              "QLinearConv>y");
}

TEST_CASE("Products become QLinearMatMul or MatMulIntegerToFloat") {
  const Shape rows{3, 4};
  CheckMerges(Model(rows)
                  .AddWeights("weights", "scales", -1)
                  .Add(OperatorDef("MatMul", {"x", "w"}, {"h"}))
                  .Add(Quantize("h", "y", "middle"))
                  .Returns("y"),
              "QLinearMatMul>y");
  CheckMerges(Model(rows)
                  .AddWeights("weights", "w_scale", 1)
                  .Add(OperatorDef("MatMul", {"x", "w"}, {"y"}))
                  .Returns("y"),
              "com.microsoft.MatMulIntegerToFloat>y");
  CheckMerges(Model(rows)
                  .AddWeights("turned", "scales", 0)
                  .Add(OperatorDef("Gemm", {"x", "w", "floats"}, {"y"}, {{"transB", 1}}))
                  .Returns("y"),
              "com.microsoft.MatMulIntegerToFloat>y");
  CheckMerges(Model(rows)
                  .AddWeights("weights", "scales", 1)
                  .Add(OperatorDef("Gemm", {"x", "w"}, {"h"}))
                  .Add(Quantize("h", "y", "middle"))
                  .Returns("y"),
              "com.microsoft.MatMulIntegerToFloat>h QuantizeLinear>y");
}

// Numbers from dynamically quantised x: what the tools of ONNX Runtime write.
Model Dynamic(const char* b_scale) {
  Model model({3, 4});
  model.Add(OperatorDef("DynamicQuantizeLinear", {"x"}, {"q", "q_scale", "q_zero"}))
      .Add(OperatorDef("Mul", {"q_scale", b_scale}, {"factors"}))
      .Add(OperatorDef("MatMulInteger", {"q", "weights", "q_zero"}, {"sums"}))
      .Add(OperatorDef("Cast", {"sums"}, {"numbers"}, {{"to", 1}}))
      .Add(OperatorDef("Mul", {"numbers", "factors"}, {"y"}));
  return model;
}
TEST_CASE("Sums that are scaled become MatMulIntegerToFloat") {
  const std::string before = "DequantizeLinear>x DynamicQuantizeLinear>q ";
  const std::string product = before + "com.microsoft.MatMulIntegerToFloat>";
  CheckMerges(Dynamic("scales").Returns("y"), product + "y");
  CheckMerges(Dynamic("w_scale").Add(OperatorDef("Add", {"floats", "y"}, {"z"})).Returns("z"),
              product + "z");
  CheckMerges(Dynamic("w_scale").Add(OperatorDef("Add", {"y", "six"}, {"z"})).Returns("z"),
              product + "y Add>z");
  CheckMerges(Dynamic("scales").Returns("y").Returns("sums"),
              before + "Mul>factors MatMulInteger>sums Cast>numbers Mul>y");
}

TEST_CASE("Operators that move elements run on integers if scale and zero point stay") {
  const OperatorDef turn("Transpose", {"x"}, {"t"});
  const Model same = Model({3, 4})
                         .Add(turn)
                         .Add(OperatorDef("QuantizeLinear", {"t", "x_scale", "x_zero"}, {"y"}))
                         .Returns("y");
  CheckMerges(same, "Transpose>y");
  CheckMerges(Model({3, 4}).Add(turn).Add(Quantize("t", "y", "x_zero")).Returns("y"),
              "Transpose>y@moved opkit.MapBytes>y");
  CheckMerges(Model({3, 4}).Add(turn).Add(Quantize("t", "y", "x_zero")).Returns("y").Returns("t"),
              "DequantizeLinear>x Transpose>t QuantizeLinear>y");
}

TEST_CASE("Functions of one element become a lookup in a table") {
  const auto function = [](OperatorDef node) {
    return Model({2, 3}).Add(std::move(node)).Add(Quantize("f", "y", "middle")).Returns("y");
  };
  const std::string lookup = "opkit.MapBytes>y";
  CheckMerges(function(OperatorDef("Sigmoid", {"x"}, {"f"})), lookup);
  CheckMerges(function(OperatorDef("LeakyRelu", {"x"}, {"f"}, {{"alpha", 0.25f}})), lookup);
  CheckMerges(function(OperatorDef("Sub", {"six", "x"}, {"f"})), lookup);
  CheckMerges(function(OperatorDef("Clip", {"x", "", "least"}, {"f"})), lookup);
  // Several functions, or another scale alone. The table has the numbers of int8 as indices, too.
  Model several({2, 3});
  several.graph.AddConstant("signed", Tensor::Scalar<int8_t>(-7));
  CheckMerges(several.Add(OperatorDef("Relu", {"x"}, {"r"}))
                  .Add(OperatorDef("Mul", {"r", "six"}, {"f"}))
                  .Add(Quantize("f", "q", "signed"))
                  .Add(Dequantize("q", "y_scale", "signed", "z"))
                  .Add(Quantize("z", "y", "middle"))
                  .Returns("y"),
              "opkit.MapBytes>q opkit.MapBytes>y");
  CheckMerges(function(OperatorDef("Softmax", {"x"}, {"f"})),
              "DequantizeLinear>x Softmax>f QuantizeLinear>y");
  CheckMerges(function(OperatorDef("Add", {"x", "floats"}, {"f"})),  // a number for each column
              "DequantizeLinear>x Add>f QuantizeLinear>y");
  CheckMerges(function(OperatorDef("Sigmoid", {"x"}, {"f"})).Returns("f"),
              "DequantizeLinear>x Sigmoid>f QuantizeLinear>y");
}

TEST_CASE("Sums, products and concatenations of quantised tensors are of integers") {
  const auto combined = [](OperatorDef node, const char* zero, const char* more = "more") {
    Model model({3, 4});
    model.graph.AddConstant("more", Tensor::From<uint8_t>({4}, {1, 20, 200, 255}));
    model.graph.AddConstant("signed", Tensor::From<int8_t>({4}, {1, -20, 100, 127}));
    return model.Add(OperatorDef("DequantizeLinear", {more, "w_scale"}, {"m"}))
        .Add(std::move(node))
        .Add(Quantize("f", "y", zero))
        .Returns("y");
  };
  CheckMerges(combined(OperatorDef("Add", {"x", "m"}, {"f"}), "middle"),
              "com.microsoft.QLinearAdd>y");
  CheckMerges(combined(OperatorDef("Mul", {"m", "x"}, {"f"}), "middle"),
              "com.microsoft.QLinearMul>y");
  CheckMerges(combined(OperatorDef("Add", {"x", "m"}, {"f"}), "middle", "signed"),
              "DequantizeLinear>x DequantizeLinear>m Add>f QuantizeLinear>y");
  CheckMerges(Model({3, 4})
                  .Add(OperatorDef("QuantizeLinear", {"x", "y_scale", "middle"}, {"q"}))
                  .Add(Dequantize("q", "y_scale", "middle", "z"))
                  .Add(OperatorDef("Concat", {"x", "z", "x"}, {"f"}, {{"axis", 1}}))
                  .Add(Quantize("f", "y", "middle"))
                  .Returns("y"),
              "opkit.MapBytes>q opkit.MapBytes>y@part0 Concat>y");
}

TEST_CASE("A constant is quantised at once") {
  CheckMerges(Model({2, 3})
                  .Add(OperatorDef("QuantizeLinear", {"floats", "w_scale", "middle"}, {"wq"}))
                  .Add(Dequantize("wq", "w_scale", "middle", "w"))
                  .Add(OperatorDef("MatMul", {"x", "w"}, {"y"}))
                  .Returns("y"),
              "com.microsoft.MatMulIntegerToFloat>y");
}

TEST_CASE("Sums that could leave int32 stay in float32") {
  const auto product = [](int64_t k) {
    Model model({1, k});
    model.graph.AddConstant("long", Bytes({k, 1}, 5));
    model.AddWeights("long", "w_scale", 1).Add(OperatorDef("MatMul", {"x", "w"}, {"y"}));
    return Operators(MergeQuantizedNodes(model.Returns("y").graph));
  };
  CHECK(product(33025) == "com.microsoft.MatMulIntegerToFloat>y");
  CHECK(product(33026) == "DequantizeLinear>x DequantizeLinear>w MatMul>y");
  const auto convolution = [](int32_t steps) {
    Model model({2, 4, 5, 5});
    model.graph.AddConstant("far", Vector<int32_t>({steps, steps, steps}));
    model.AddWeights("kernels", "w_scale", 1)
        .Add(OperatorDef("DequantizeLinear", {"far", "bias_scale"}, {"b"}, {{"axis", 0}}))
        .Add(Conv({"x", "w", "b"}))
        .Add(Quantize("h", "y", "middle"));
    return Operators(MergeQuantizedNodes(model.Returns("y").graph));
  };
  CHECK(convolution(2000000000 / 4) == "QLinearConv>y");
  CHECK(convolution((std::numeric_limits<int32_t>::max)() - 1000) ==
        "DequantizeLinear>x DequantizeLinear>w DequantizeLinear>b Conv>h QuantizeLinear>y");
}

TEST_CASE("A graph with inconsistent types stays as it is") {
  Model model({2, 2});  // the zero point is not of the type of xq
  model.graph.AddConstant("signed", Tensor::Scalar<int8_t>(0));
  model.Add(Dequantize("xq", "x_scale", "signed", "z"))
      .Add(OperatorDef("Relu", {"z"}, {"r"}))
      .Add(Quantize("r", "y"));
  CHECK(Operators(MergeQuantizedNodes(model.Returns("y").graph)) ==
        "DequantizeLinear>x DequantizeLinear>z Relu>r QuantizeLinear>y");
}

TEST_CASE("What integers would change stays as it is") {
  const Shape images{2, 4, 5, 5};
  const auto conv = [&](OperatorDef activation, const char* zero) {
    return Model(images)
        .AddWeights("kernels", "scales", 0)
        .Add(Conv({"x", "w"}))
        .Add(std::move(activation))
        .Add(Quantize("r", "y", zero))
        .Returns("y");
  };
  const std::string stays = "DequantizeLinear>x DequantizeLinear>w Conv>h Relu>r QuantizeLinear>y";
  const OperatorDef relu("Relu", {"h"}, {"r"}), clip("Clip", {"h", "least", "six"}, {"r"});
  CheckMerges(conv(relu, "zero"), "QLinearConv>y");
  CheckMerges(conv(OperatorDef("Clip", {"h", "least", "twenty"}, {"r"}), "zero"), "QLinearConv>y");
  CheckMerges(conv(relu, "middle"), stays);  // saturation keeps negative numbers
  CheckMerges(conv(clip, "zero"),
              "DequantizeLinear>x DequantizeLinear>w Conv>h Clip>r QuantizeLinear>y");
  CheckMerges(conv(relu, "zero").Returns("h"), stays);  // h is returned
  CheckMerges(conv(relu, "zero").Add(OperatorDef("Relu", {"h"}, {"z"})).Returns("z"),
              stays + " Relu>z");  // h has two readers
  // Scales along another axis than that of the output channels.
  CheckMerges(Model({3, 3})
                  .AddWeights("turned", "scales", 0)
                  .Add(OperatorDef("MatMul", {"x", "w"}, {"y"}))
                  .Returns("y"),
              "DequantizeLinear>x DequantizeLinear>w MatMul>y");
  Model vector({2, 3});
  vector.graph.AddConstant("vector", Bytes(Shape{3}, 4));
  CheckMerges(vector.AddWeights("vector", "scales", 0)
                  .Add(OperatorDef("MatMul", {"x", "w"}, {"y"}))
                  .Returns("y"),
              "DequantizeLinear>x DequantizeLinear>w MatMul>y");
  // A bias that is far from the steps of the sums.
  Model coarse(images);
  coarse.graph.AddConstant("large", Tensor::Scalar(7.3f));
  CheckMerges(coarse.AddWeights("kernels", "large", 0)
                  .Add(Conv({"x", "w", "floats"}))
                  .Add(Quantize("h", "y", "middle"))
                  .Returns("y"),
              "DequantizeLinear>x DequantizeLinear>w Conv>h QuantizeLinear>y");
  // A node that requires a backend, and one with a control edge.
  const auto product = [](OperatorDef node) {
    return Model({3, 4}).AddWeights("weights", "scales", 1).Add(std::move(node)).Returns("y");
  };
  const OperatorDef node("MatMul", {"x", "w"}, {"y"});
  CheckMerges(product(OperatorDef(node).Backends("reference", OperatorDef::kRequired)),
              "DequantizeLinear>x DequantizeLinear>w MatMul>y");
  CheckMerges(product(OperatorDef(node).Name("first"))
                  .Add(OperatorDef("Relu", {"y"}, {"z"}).ControlInput("first"))
                  .Returns("z"),
              "DequantizeLinear>x DequantizeLinear>w MatMul>y Relu>z");
}

}  // namespace
}  // namespace quantized_passes_test
