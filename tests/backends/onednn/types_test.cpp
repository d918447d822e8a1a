// bfloat16 in Conv, MatMul and Gemm of the "onednn" backend: the plain operators' results, but for
// a unit in the last place, where the CPU has instructions for it.
#include "opkit/backends/onednn/types.hpp"

#include "backends/onednn/images.hpp"
#include "opkit/graph/explanation.hpp"
#include "opkit/graph/passes.hpp"

namespace types_test { namespace {

using namespace opkit;
using namespace onednn_test;

bool CanCompute() {
  if (detail::OnednnHasBFloat16()) return true;
  MESSAGE("skipped: no bfloat16 instructions");
  return false;
}
Tensor Narrow(const Shape& shape, uint64_t seed) {
  const Tensor wide = Random(shape, seed);
  Tensor out(shape, DType::kBFloat16);
  for (int64_t i = 0; i < wide.numel(); ++i)
    out.mutable_data<bfloat16>()[i] = bfloat16(wide.data<float>()[i]);
  return out;
}
// The default passes without the one that computes convolutions of bfloat16 in float32.
const PassList& InBFloat16() {
  static const PassList passes = [] {
    PassList out = DefaultPasses();
    out.Remove("compute_half_in_float32");
    return out;
  }();
  return passes;
}
// Sums in float and in double are rounded to neighbours at most.
void CheckNear(const Tensor& found, const Tensor& expected, int units = 1) {
  CHECK(Difference(found, expected, {.rtol = units * 0x1p-7, .atol = units * 1e-4}) == "");
}
// Returns the configuration that was chosen for the graph's first node.
KernelConfig CheckSame(const Graph& graph, const Tensor& x, int units = 1) {
  const Plan plan = Compile(graph, {.passes = &InBFloat16()});
  const NodeChoice choice = plan.choice(0);
  CHECK(choice.kernel->backend == "onednn");
  const Tensor expected = RunGraph(Plainly(graph), x);
  for (const int threads : {1, 3})
    CheckNear(RunGraph(graph, x, threads, &InBFloat16()), expected, units);
  return choice.config;
}
// With the second input as a constant, and as one that each run brings.
KernelConfig CheckBoth(const std::string& op, const std::vector<Tensor>& inputs,
                       const Arguments& args = {}) {
  INFO(StrCat(op, " of ", inputs[0], " and ", inputs[1]));
  const Tensor expected = Invoke(op, inputs, args, {.backends = "reference"})[0];
  CheckNear(Invoke(op, inputs, args, {.backends = "onednn"})[0], expected);
  CHECK(IsTakenBy("onednn", op, inputs, args, 1));
  return CheckSame(GraphOf(op, inputs, args), inputs[0]);
}

TEST_CASE("Convolutions of bfloat16 are computed as the plain operator does") {
  if (!CanCompute()) return;
  const auto check = [](const Shape& x, const Shape& w, const Arguments& args) {
    CheckBoth("Conv", {Narrow(x, 1), Narrow(w, 2)}, args);
    return CheckBoth("Conv", {Narrow(x, 1), Narrow(w, 2), Narrow(Shape{w[0]}, 3)}, args);
  };
  const Ints pads(4, 1);
  const KernelConfig wide = check({1, 64, 14, 14}, {64, 64, 3, 3}, {{"pads", pads}});
  CHECK(ToString(wide.input_layouts[0]) == "onednn aBcd16b");
  const KernelConfig first = check({1, 3, 32, 32}, {16, 3, 3, 3}, {{"pads", pads}});
  CHECK(first.input_layouts[0].is_standard());
  CHECK(ToString(first.output_layouts[0]) == "onednn aBcd16b");
  check({3, 20, 13, 13}, {40, 20, 3, 3}, {{"strides", Ints{2, 2}}});
  check({1, 96, 28, 28}, {96, 1, 3, 3}, {{"group", 96}, {"pads", pads}});
  check({2, 32, 9, 9}, {32, 8, 3, 3}, {{"group", 4}, {"pads", pads}});
  check({1, 64, 20, 20}, {128, 64, 1, 1}, {});
  check({1, 2, 5, 5}, {3, 2, 2, 2}, {});
  check({2, 16, 60}, {24, 16, 5}, {{"pads", Ints{2, 2}}});
}

TEST_CASE("Products of bfloat16 are computed as the plain operators do") {
  if (!CanCompute()) return;
  CheckBoth("MatMul", {Narrow({40, 70}, 1), Narrow({70, 90}, 2)});
  CheckBoth("MatMul", {Narrow({2, 3, 25, 64}, 1), Narrow({64, 130}, 2)});
  CheckBoth("MatMul", {Narrow({1, 5}, 1), Narrow({5, 3}, 2)});
  for (const int64_t transposed : {0, 1}) {
    const Tensor b = transposed ? Narrow({96, 64}, 2) : Narrow({64, 96}, 2);
    CheckBoth("Gemm", {Narrow({33, 64}, 1), b}, {{"transB", transposed}});
    CheckBoth("Gemm", {Narrow({33, 64}, 1), b, Narrow(Shape{96}, 3)}, {{"transB", transposed}});
  }
}

TEST_CASE("Nodes behind a product of bfloat16 are fused into it") {
  if (!CanCompute()) return;
  const auto check = [](const char* op, const Shape& x, const Shape& w, const Shape& each) {
    CAPTURE(std::string(op));
    Graph graph;
    graph.AddInput("x", DType::kBFloat16, SymbolicShape(x));
    graph.AddConstant("w", Narrow(w, 1));
    graph.AddConstant("each", Narrow(each, 2));
    graph.AddConstant("two", Narrow({}, 3));
    graph.AddNode(OperatorDef(op, {"x", "w"}, {"h"}));
    graph.AddNode(OperatorDef("Relu", {"h"}, {"a"}));
    graph.AddNode(OperatorDef("Add", {"a", "each"}, {"b"}));
    graph.AddNode(OperatorDef("Mul", {"b", "two"}, {"y"}));
    graph.AddOutput("y");
    const Explanation explanation = Compile(graph, {.passes = &InBFloat16()}).Explain();
    REQUIRE(explanation.nodes.size() == 1);
    CHECK(explanation.nodes[0].parts.size() == 4);
    CheckSame(graph, Narrow(x, 9), 3);  // the plain operators round between
  };
  check("MatMul", {40, 64}, {64, 96}, {96});
  check("Conv", {2, 64, 12, 12}, {64, 64, 1, 1}, {1, 64, 1, 1});
}

TEST_CASE("bfloat16 is refused where the CPU has no instructions for it, other types everywhere") {
  const auto why = [](DType dtype) {
    Graph graph;
    graph.AddInput("x", dtype, {40, 64});
    graph.AddInput("w", dtype, {64, 96});
    graph.AddNode(OperatorDef("MatMul", {"x", "w"}, {"y"}).Backends("onednn"));
    graph.AddOutput("y");
    const PassList none;  // the default passes compute it in float32
    return Compile(graph, {.passes = &none}).choice(0).passed_over;
  };
  CHECK(why(DType::kFloat64).find("float32 and bfloat16, and input 0 is float64") !=
        std::string::npos);
  CHECK((why(DType::kBFloat16).find("this CPU has no bfloat16 instructions") ==
         std::string::npos) == detail::OnednnHasBFloat16());
}

TEST_CASE("A layout of bfloat16 holds no float32") {
  const Layout layout = detail::OnednnBlocked({1, 16, 3, 3}, 16, detail::OnednnType::bf16);
  const Tensor x = Narrow({1, 16, 3, 3}, 1);
  CHECK(ConvertLayout(ConvertLayout(x, layout), Layout()).ToVector<bfloat16>()[77].bits ==
        x.data<bfloat16>()[77].bits);
  CHECK_THROWS_AS(ConvertLayout(Random({1, 16, 3, 3}, 1), layout), Error);
}

}  // namespace
}  // namespace types_test
