// float16 and bfloat16 with the kernels of the backend: the conversions, and the pass that lets the
// kernels for float32 compute the nodes.
#include "opkit/graph/passes/half_precision.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace half_precision_test {
namespace {

using namespace opkit;

Tensor ConvertTo(const Tensor& x, DType dtype, const char* backend = "eigen") {
  const int64_t to = dtype == DType::kFloat32 ? 1 : dtype == DType::kFloat16 ? 10 : 16;
  return Invoke("Cast", {x}, {{"to", to}}, {.backends = backend})[0];
}
std::string Operators(const Graph& graph) {
  std::string text;
  for (const OperatorDef& node : graph.nodes())
    text += (text.empty() ? "" : " ") + node.type() + ">" + node.outputs()[0];
  return text;
}
// x is [2, 6, 5, 5]; the weights make 6 channels of it again.
Graph Begin(DType dtype, const std::vector<OperatorDef>& nodes,
            const std::vector<std::string>& outputs = {"y"}) {
  Graph graph;
  graph.AddInput("x", dtype, {2, 6, 5, 5});
  graph.AddConstant("w", ConvertTo(Random({6, 6, 3, 3}, 1), dtype));
  graph.AddConstant("b", ConvertTo(Random(Shape{6}, 2), dtype));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  for (const std::string& output : outputs) graph.AddOutput(output);
  return graph;
}
OperatorDef Conv(const std::string& from, const std::string& to) {
  return OperatorDef("Conv", {from, "w", "b"}, {to}, {{"pads", std::vector<int64_t>(4, 1)}});
}
Tensor RunOn(const Graph& graph, const Tensor& x, const PassList& passes,
             const std::string& output = "y") {
  Executor executor(Compile(graph, {.threads = 1, .passes = &passes}));
  return executor.Run({{"x", x}}).Get(output);
}

}  // namespace

TEST_CASE("Cast converts half types as float16 and bfloat16 do, to the bit") {
  std::vector<uint16_t> all(65536 + 3);  // three more than whole vectors
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> floats = {0.f,
                               -0.f,
                               1e-8f,
                               5.9604645e-08f,
                               2.9802322e-08f,
                               2.98023259e-08f,
                               6.1e-5f,
                               6.09755516e-05f,
                               65504.f,
                               65519.99f,
                               65520.f,
                               -1e30f,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               std::bit_cast<float>(0xff800001u)};
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    floats.push_back(std::bit_cast<float>(bits));
    // Near the range of float16, with ties.
    floats.push_back(std::bit_cast<float>((bits & 0x8ffff000) | 0x30000000) * 1.5f);
  }
  const auto same_bits = [&]<class Half>(Half) {
    std::vector<Half> halves(all.size());
    for (size_t i = 0; i < all.size(); ++i) halves[i].bits = all[i];
    const Tensor x = Tensor::From<Half>({static_cast<int64_t>(all.size())}, halves);
    const Tensor wide = ConvertTo(x, DType::kFloat32);
    int wrong = 0;
    for (size_t i = 0; i < all.size(); ++i)
      wrong += std::bit_cast<uint32_t>(wide.data<float>()[i]) !=
               std::bit_cast<uint32_t>(static_cast<float>(halves[i]));
    CHECK(wrong == 0);
    const Tensor y = ConvertTo(Vector(floats), kDTypeOf<Half>);
    wrong = 0;
    for (size_t i = 0; i < floats.size(); ++i)
      wrong += y.data<Half>()[i].bits != Half(floats[i]).bits;
    CHECK(wrong == 0);
    CHECK(IsTakenBy("eigen", "Cast", {x}, {{"to", int64_t{1}}}, 1));
  };
  same_bits(float16());
  same_bits(bfloat16());
}

TEST_CASE("every kernel for float32 takes half types, and rounds its results once") {
  struct Case {
    const char* op;
    std::vector<Shape> shapes;
    Arguments args = {};
    int outputs = 1;
  };
  const std::vector<int64_t> window = {2, 2};
  const Case cases[] = {
      {"Conv", {{2, 3, 9, 9}, {4, 3, 3, 3}, {4}}},
      {"ConvTranspose", {{1, 3, 5, 5}, {3, 2, 3, 3}}},
      {"MatMul", {{3, 7, 9}, {9, 5}}},
      {"Gemm", {{7, 9}, {9, 5}, {5}}, {{"alpha", 0.5f}}},
      {"Relu", {{5, 7}}},
      {"Tanh", {{3, 67}}},
      {"Add", {{3, 7, 9}, {7, 1}}},
      {"Greater", {{3, 7}, {3, 7}}},
      {"Softmax", {{4, 33}}},
      {"LayerNormalization", {{4, 33}, {33}, {33}}, {}, 3},
      {"BatchNormalization", {{2, 3, 5}, {3}, {3}, {3}, {3}}},
      {"MaxPool", {{1, 2, 6, 6}}, {{"kernel_shape", window}}},
      {"AveragePool", {{1, 2, 6, 6}}, {{"kernel_shape", window}}},
      {"GlobalAveragePool", {{1, 2, 6, 6}}},
      {"ReduceSum", {{4, 33}}, {{"keepdims", int64_t{0}}}},
      {"LSTM", {{3, 2, 4}, {1, 20, 4}, {1, 20, 5}}, {{"hidden_size", int64_t{5}}}, 3},
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16})
    for (const Case& one : cases) {
      CAPTURE(std::string(one.op));
      CAPTURE(dtype);
      std::vector<Tensor> halves, floats;
      for (const Shape& shape : one.shapes) {
        Tensor floating = Random(shape, static_cast<unsigned>(halves.size()) + 1);
        float* numbers = floating.mutable_data<float>();
        for (int64_t i = 0; i < floating.numel(); ++i) numbers[i] = std::fabs(numbers[i]) + 0.1f;
        halves.push_back(ConvertTo(floating, dtype));
        floats.push_back(ConvertTo(halves.back(), DType::kFloat32));
      }
      CHECK(IsTakenBy("eigen", one.op, halves, one.args, one.outputs));
      const InvokeOptions options = {
          .backends = "eigen", .num_outputs = one.outputs, .backend_need = kRequired};
      const std::vector<Tensor> found = Invoke(one.op, halves, one.args, options);
      const std::vector<Tensor> wide = Invoke(one.op, floats, one.args, options);
      for (size_t o = 0; o < found.size(); ++o) {
        const Tensor expected =
            wide[o].dtype() == found[o].dtype() ? wide[o] : ConvertTo(wide[o], dtype);
        REQUIRE(found[o].dtype() == expected.dtype());
        CHECK(found[o].shape() == expected.shape());
        CHECK(std::memcmp(found[o].raw_data(), expected.raw_data(),
                          static_cast<size_t>(found[o].nbytes())) == 0);
      }
      CHECK((one.op == std::string("Greater")) == (found[0].dtype() == DType::kBool));
    }
}

TEST_CASE("a kernel takes no half types for a node that leaves out an output") {
  const auto propose = [](const char* mean) {
    const OperatorDef def("LayerNormalization", {"x", "scale"}, {"y", mean, "inverse"});
    const TensorInfo x(DType::kFloat16, Shape{4, 33}), scale(DType::kFloat16, Shape{33});
    const TensorInfo statistics(DType::kFloat32, Shape{4, 1});
    const std::vector<TensorInfo> inputs = {x, scale}, outputs = {x, statistics, statistics};
    return ProposeOf("eigen", {def, inputs, outputs});
  };
  CHECK(propose("mean")[0].variant == "in float32");
  CHECK(Contains(ErrorOf([&] { propose(""); }).message(), "input 0 is float16"));
}

TEST_CASE("an operator for half types runs again with other shapes and inputs") {
  ResolvedOperator add("Add", 2, {}, {.backends = "eigen", .backend_need = kRequired});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat16})
    for (const int64_t n : {3, 40, 7}) {
      const Tensor x = ConvertTo(Random({n}, 1), dtype), y = ConvertTo(Random({n}, 2), dtype);
      const Tensor found = add({x, y})[0];
      CHECK(found.dtype() == dtype);
      const Tensor expected = Invoke("Add", {x, y}, {}, {.backends = "reference"})[0];
      CHECK(std::memcmp(found.raw_data(), expected.raw_data(),
                        static_cast<size_t>(found.nbytes())) == 0);
    }
}

TEST_CASE("a plan computes half types in float32 and rounds at the end") {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(dtype);
    const std::vector<OperatorDef> nodes = {
        Conv("x", "a"), OperatorDef("Relu", {"a"}, {"c"}), OperatorDef("Identity", {"c"}, {"d"}),
        Conv("d", "e"),
        OperatorDef("MaxPool", {"e"}, {"y"}, {{"kernel_shape", std::vector<int64_t>{2, 2}}})};
    const Graph graph = Begin(dtype, nodes);
    const Graph wide = ComputeHalfInFloat32(graph);
    CHECK(Operators(wide) ==
          "Cast>x.float32 Conv>a.float32 Relu>c.float32 Identity>d.float32 Conv>e.float32 "
          "MaxPool>y.float32 Cast>y");
    CHECK(!wide.IsConstant("w"));  // only in float32
    CHECK(wide.FindConstant("w.float32")->dtype() == DType::kFloat32);
    CHECK(Operators(ComputeHalfInFloat32(wide)) == Operators(wide));

    // The twin in float32 has the same weights.
    Graph twin;
    twin.AddInput("x", DType::kFloat32, {2, 6, 5, 5});
    for (const char* name : {"w", "b"})
      twin.AddConstant(name, ConvertTo(*graph.FindConstant(name), DType::kFloat32));
    for (const OperatorDef& node : nodes) twin.AddNode(node);
    twin.AddOutput("y");
    const Tensor x = ConvertTo(Random({2, 6, 5, 5}, 9), dtype);
    const Tensor found = RunOn(graph, x, DefaultPasses());
    CHECK(found.dtype() == dtype);
    const Tensor expected =
        ConvertTo(RunOn(twin, ConvertTo(x, DType::kFloat32), DefaultPasses()), dtype, "reference");
    CHECK(std::memcmp(found.raw_data(), expected.raw_data(), static_cast<size_t>(found.nbytes())) ==
          0);
    // Node by node, each result is rounded.
    const double rtol = dtype == DType::kFloat16 ? 4e-3 : 3e-2;
    CHECK(Difference(ConvertTo(found, DType::kFloat32),
                     ConvertTo(RunOn(graph, x, PassList()), DType::kFloat32),
                     {.rtol = rtol, .atol = 10 * rtol}) == "");
  }
}

TEST_CASE("the pass converts where half types are read or returned") {
  const DType half = DType::kFloat16;
  // An output in the middle, and a comparison, read rounded numbers.
  CHECK(Operators(ComputeHalfInFloat32(
            Begin(half,
                  {Conv("x", "a"), OperatorDef("Relu", {"a"}, {"c"}), Conv("c", "y"),
                   OperatorDef("Greater", {"c", "a"}, {"larger"})},
                  {"y", "c", "larger"}))) ==
        "Cast>x.float32 Conv>a.float32 Cast>a Relu>c.float32 Cast>c Conv>y.float32 Cast>y "
        "Greater>larger");
  // Nodes at a border that only move elements keep their type, and a conversion of the model stays.
  const Graph border = Begin(half, {OperatorDef("Identity", {"x"}, {"i"}), Conv("i", "a"),
                                    OperatorDef("Identity", {"a"}, {"j"}),
                                    OperatorDef("Cast", {"j"}, {"y"}, {{"to", int64_t{1}}})});
  CHECK(Operators(ComputeHalfInFloat32(border)) ==
        "Identity>i Cast>i.float32 Conv>a.float32 Cast>a Identity>j Cast>y");
  // A mask beside the numbers does not matter.
  CHECK(
      Operators(ComputeHalfInFloat32(Begin(
          half, {Conv("x", "a"), OperatorDef("Dropout", {"a"}, {"c", "mask"}), Conv("c", "y")}))) ==
      "Cast>x.float32 Conv>a.float32 Dropout>c.float32 Conv>y.float32 Cast>y");
  // A conversion of integers makes the wide type at once.
  Graph integers = Begin(half, {OperatorDef("Cast", {"n"}, {"x1"}, {{"to", int64_t{10}}}),
                                OperatorDef("Add", {"x", "x1"}, {"y"})});
  integers.AddInput("n", DType::kInt64, {5});
  CHECK(Operators(ComputeHalfInFloat32(integers)) ==
        "Cast>x1.float32 Cast>x.float32 Add>y.float32 Cast>y");
  CHECK(RunOn(border, ConvertTo(Random({2, 6, 5, 5}, 9), half), DefaultPasses()).dtype() ==
        DType::kFloat32);
}

TEST_CASE("the pass keeps what it cannot or need not widen") {
  const DType half = DType::kFloat16;
  const std::string unchanged = "Conv>y";
  CHECK(Operators(ComputeHalfInFloat32(Begin(DType::kFloat32, {Conv("x", "y")}))) == unchanged);
  OperatorDef plain = Conv("x", "y");
  plain.Backends("reference", kRequired);
  CHECK(Operators(ComputeHalfInFloat32(Begin(half, {plain}))) == unchanged);
  OperatorDef waits = Conv("x", "y");
  waits.mutable_control_inputs() = {"first"};
  CHECK(Operators(ComputeHalfInFloat32(Begin(
            half, {OperatorDef("Identity", {"x"}, {"i"}).Name("first"), waits}, {"y", "i"}))) ==
        "Identity>i Conv>y");
  // A type that inference does not change: the output stays float16.
  CHECK(Operators(ComputeHalfInFloat32(
            Begin(half, {OperatorDef("Cast", {"x"}, {"y"}, {{"to", int64_t{10}}})}))) == "Cast>y");
  // A graph whose input has no type is compiled as before.
  Graph open;
  open.AddInput("x", DType::kUndefined, {});
  open.AddConstant("w", ConvertTo(Random({6, 6, 3, 3}, 1), half));
  open.AddConstant("b", ConvertTo(Random(Shape{6}, 2), half));
  open.AddNode(Conv("x", "y"));
  open.AddOutput("y");
  CHECK(Operators(ComputeHalfInFloat32(open)).find("Conv") != std::string::npos);
}

TEST_CASE("shapes may be open") {
  Graph graph;
  graph.AddInput("x", DType::kFloat16, {Sym("N"), 6, Sym("H"), Sym("W")});
  graph.AddConstant("w", ConvertTo(Random({6, 6, 3, 3}, 1), DType::kFloat16));
  graph.AddConstant("b", ConvertTo(Random(Shape{6}, 2), DType::kFloat16));
  graph.AddNode(Conv("x", "y"));
  graph.AddOutput("y");
  CHECK(Operators(ComputeHalfInFloat32(graph)) == "Cast>x.float32 Conv>y.float32 Cast>y");
}

}  // namespace half_precision_test
