// Elementwise operators on CUDA beside those of the CPU, for shapes, types and memory that the node
// corpus lacks.
#include <doctest/doctest.h>

#include <set>

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "support/backends.hpp"

namespace elementwise_test {
using namespace opkit;

namespace {

constexpr Device kCuda{DeviceType::kCUDA, 0};

// Compiles a node with inputs of these types and shapes, for the device if it can run it. Inputs
// that are listed in `constants` are constants of the graph.
Plan PlanOf(const OperatorDef& def, const std::vector<Tensor>& inputs, bool on_device,
            const std::set<size_t>& constants = {}) {
  Graph graph;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (constants.contains(i))
      graph.AddConstant(def.inputs()[i], inputs[i]);
    else
      graph.AddInput(def.inputs()[i], inputs[i].dtype(), inputs[i].shape(), inputs[i].device());
  graph.AddNode(def);
  for (const std::string& output : def.outputs()) graph.AddOutput(output);
  PlanOptions options;
  options.threads = 1;
  if (on_device) options.devices = {kCuda, Device()};
  return Compile(graph, options);
}
// True if the plan has the one node, and runs it on the device.
bool RunsOnDevice(const Plan& plan) {
  return plan.graph().num_nodes() == 1 && plan.choice(0).kernel->device == DeviceType::kCUDA;
}
std::vector<Tensor> Run(const Plan& plan, const OperatorDef& def, const std::vector<Tensor>& inputs,
                        const std::set<size_t>& constants = {}) {
  std::vector<NamedTensor> feeds;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!constants.contains(i)) feeds.push_back({def.inputs()[i], inputs[i]});
  Executor executor(plan);
  std::vector<Tensor> out;
  for (const auto& [name, tensor] : executor.Run(feeds)) out.push_back(OnHost(tensor));
  return out;
}
std::vector<double> Numbers(const Tensor& tensor) {
  std::vector<double> out;
  PlainTypes::Visit(tensor.dtype(), [&]<class T>() {
    for (const auto x : tensor.ToVector<T>()) out.push_back(static_cast<double>(x));
  });
  return out;
}
// Checks that the device gives the numbers of the CPU, up to a few roundings of the dtype, `sums`
// times as many if it adds numbers.
void CheckAsOnCpu(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {},
                  double sums = 1) {
  CAPTURE(op);
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    names.push_back(StrCat("x", i));
    CAPTURE(inputs[i]);
  }
  const OperatorDef def(op, names, {"y"}, std::move(args));
  const Plan plan = PlanOf(def, inputs, true);
  REQUIRE(RunsOnDevice(plan));
  const Tensor found = Run(plan, def, inputs)[0];
  const Tensor expected = Run(PlanOf(def, inputs, false), def, inputs)[0];
  REQUIRE(found.shape() == expected.shape());
  REQUIRE(found.dtype() == expected.dtype());
  const std::vector<double> x = Numbers(found), y = Numbers(expected);
  const double error = found.dtype() == DType::kFloat16    ? 1e-3
                       : found.dtype() == DType::kBFloat16 ? 8e-3
                       : found.dtype() == DType::kFloat32  ? 2e-6 * sums
                       : found.dtype() == DType::kFloat64  ? 1e-14 * sums
                                                           : 0;
  int64_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i)
    wrong += !(std::fabs(x[i] - y[i]) <= error * (1 + std::fabs(y[i])));
  CHECK(wrong == 0);
}
Tensor Random(const Shape& shape, DType dtype, double low = -3, double high = 3) {
  static uint64_t seed = 1;
  return detail::MakeTestInputs({shape}, dtype, seed++, low, high)[0];
}

}  // namespace

TEST_CASE("elementwise operators on CUDA compute every size, to the last element") {
  for (const int64_t size : {0, 1, 3, 4, 5, 7, 8, 9, 1000, 1001}) {
    CheckAsOnCpu("Sigmoid", {Random({size}, DType::kFloat32)});
    CheckAsOnCpu("Neg", {Random({size}, DType::kFloat64)});
    CheckAsOnCpu("Tanh", {Random({size}, DType::kFloat16)});
    // A short list of integers would stay on the host, as a shape does.
    CheckAsOnCpu("Add", {Random({1, size}, DType::kInt32), Random({1, size}, DType::kInt32)});
    CheckAsOnCpu("Less", {Random({size}, DType::kFloat32), Random({size}, DType::kFloat32)});
    CheckAsOnCpu("Sum", {Random({size}, DType::kFloat32), Random({}, DType::kFloat32),
                         Random({size}, DType::kFloat32)});
  }
}

TEST_CASE("elementwise operators on CUDA broadcast every axis") {
  const Shape shapes[][2] = {{{4, 3}, {3}},
                             {{4, 8}, {8}},
                             {{4, 8}, {4, 1}},
                             {{4, 5}, {4, 1}},
                             {{4, 1}, {1, 8}},
                             {{}, {2, 3}},
                             {{2, 3, 4}, {3, 1}},
                             {{2, 1, 4}, {3, 1}},
                             {{2, 3, 4, 8}, {1, 3, 1, 1}},
                             {{5, 1, 3}, {1, 7, 1}},
                             {{2, 1, 3, 1, 8}, {1, 2, 1, 2, 1}},
                             {{0, 3}, {1, 3}},
                             {{1, 1}, {1}}};
  for (const auto& pair : shapes)
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16})
      for (const char* op : {"Sub", "Greater", "Max"}) {
        CheckAsOnCpu(op, {Random(pair[0], dtype), Random(pair[1], dtype)});
        CheckAsOnCpu(op, {Random(pair[1], dtype), Random(pair[0], dtype)});
      }
  CheckAsOnCpu("Where", {Random({3, 1}, DType::kBool), Random({2, 1, 8}, DType::kInt8),
                         Random({}, DType::kInt8)});
  CheckAsOnCpu("Where", {Random({2, 3, 5}, DType::kBool), Random({5}, DType::kFloat64),
                         Random({3, 1}, DType::kFloat64)});
}

TEST_CASE("an elementwise operator on CUDA reads inputs that begin at any element") {
  const Tensor all = Random({65}, DType::kFloat32);
  Tensor on_device(kCuda);
  Copy(all, &on_device);
  const OperatorDef def("Mul", {"a", "b"}, {"y"});
  for (const int64_t begin : {0, 1, 2, 3, 4, 5}) {
    const Tensor a = on_device.Slice(0, begin, begin + 33), b = on_device.Slice(0, 7, 40);
    const Plan plan = PlanOf(def, {a, b}, true);
    const std::vector<float> y = Run(plan, def, {a, b})[0].ToVector<float>();
    for (int64_t i = 0; i < 33; ++i)
      CHECK(y[detail::Index(i)] == all.data<float>()[begin + i] * all.data<float>()[7 + i]);
  }
}

TEST_CASE("a loop that is too long for numbers of 32 bits is divided") {
  CUDAContext context;
  const Shape shape{3, 5, 8};
  const Tensor a = Random(shape, DType::kFloat32), b = Random({5, 1}, DType::kFloat32);
  Tensor x(kCuda), z(kCuda), y(shape, DType::kFloat32, kCuda);
  Copy(a, &x);
  Copy(b, &z);
  for (const int64_t limit : {4, 9, 50, 1000}) {
    CAPTURE(limit);
    detail::IssueLoop(
        context,
        detail::ElementwiseLoop<detail::BinaryElement<detail::SubFunction>, float, float, float>{},
        detail::ElementwiseWork::Of(&y, std::vector<const Tensor*>{&x, &z}), limit);
    context.FinishDeviceComputation();
    const Tensor found = OnHost(y);
    for (int64_t i = 0; i < 120; ++i)
      CHECK(found.data<float>()[i] == a.data<float>()[i] - b.data<float>()[i / 8 % 5]);
  }
}

TEST_CASE("the index of a broadcast divides by multiplication as by division") {
  for (const uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 10u, 641u, 65535u, 65536u, 65537u, 0x40000001u,
                                 0x7fffffffu, 0x80000000u}) {
    const detail::IndexDivisor by(divisor);
    int64_t wrong = 0;
    const uint64_t step = (0x80000000u / divisor / 1000 + 1) * uint64_t{divisor};
    for (uint64_t multiple = 0; multiple < 0x80000000u; multiple += step)
      for (const uint64_t number : {multiple, multiple + divisor - 1, multiple + divisor})
        if (number < 0x80000000u)
          wrong += by.Quotient(static_cast<uint32_t>(number)) != number / divisor;
    CAPTURE(divisor);
    CHECK(wrong == 0);
    CHECK(by.Quotient(0x7fffffffu) == 0x7fffffffu / divisor);
  }
  // Sizes from 2^31 on have divisions of 64 bits.
  const Shape shape{3, 1 << 30};
  const auto index = detail::BroadcastIndex::Of(
      shape, {BroadcastStrides(shape, shape), BroadcastStrides({3, 1}, shape)});
  int64_t from[2];
  index.Find<2>((int64_t{2} << 30) + 5, from);
  CHECK(from[0] == (int64_t{2} << 30) + 5);
  CHECK(from[1] == 2);
}

TEST_CASE("Cast on CUDA converts between all plain types as on the CPU") {
  for (const DType from : PlainTypes::DTypes())
    for (const DType to : PlainTypes::DTypes()) {
      if (from == to) continue;  // a plan has no node for it
      const Tensor x = Random({37}, from, IsFloatingPoint(from) ? -300 : 0, 127);
      CheckAsOnCpu("Cast", {x}, {{"to", OnnxNumberOf(to)}});
    }
  CheckAsOnCpu("CastLike", {Random({9}, DType::kFloat32), Random({2}, DType::kFloat16)});
}

TEST_CASE("functions and their derivatives on CUDA are those of the CPU") {
  for (const char* op : {"Celu", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
                         "Mish", "Selu", "Shrink", "Swish", "ThresholdedRelu"})
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
      const Tensor x = Random({51}, dtype), dy = Random({51}, dtype);
      Arguments args;
      if (std::string(op) != "Gelu" && std::string(op) != "Erf") {
        const OpSchema& schema = OpRegistry::Global().GetSchema(op);
        if (schema.FindAttribute("alpha")) args.Set("alpha", 0.75f);
        if (schema.FindAttribute("lambd")) args.Set("lambd", 1.5f);
        if (schema.FindAttribute("bias")) args.Set("bias", 0.25f);
      }
      CheckAsOnCpu(op, {x}, args);
      args.Set("function", op);
      CheckAsOnCpu("ScalarFunctionGradient", {x, dy}, args);
    }
  CheckAsOnCpu("Gelu", {Random({51}, DType::kFloat32)}, {{"approximate", "tanh"}});
  CheckAsOnCpu("ScalarFunctionGradient",
               {Random({51}, DType::kFloat32), Random({51}, DType::kFloat32)},
               {{"function", "Gelu"}, {"approximate", "tanh"}});
}

TEST_CASE("integers are divided on CUDA only by constants without zeros") {
  const OperatorDef div("Div", {"a", "b"}, {"y"});
  const Tensor a = Tensor::From<int32_t>({1, 3}, {7, -8, INT32_MIN});
  const Tensor b = Tensor::From<int32_t>({1, 3}, {2, -3, -1});
  const Plan plan = PlanOf(div, {a, b}, true, {1});
  REQUIRE(RunsOnDevice(plan));
  CHECK(Run(plan, div, {a, b}, {1})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{3, 2, INT32_MIN});
  CHECK_FALSE(RunsOnDevice(PlanOf(div, {a, b}, true)));
  const Tensor zero = Tensor::From<int32_t>({1, 3}, {1, 0, 1});
  CHECK_FALSE(RunsOnDevice(PlanOf(div, {a, zero}, true, {1})));
  CheckAsOnCpu("Div", {Random({9}, DType::kFloat32), Random({9}, DType::kFloat32, 1, 2)});
}

TEST_CASE("Dropout runs on CUDA unless the node may be in training") {
  const OperatorDef def("Dropout", {"x", "ratio", "training"}, {"y", "mask"});
  const Tensor x = Random({11}, DType::kFloat32), ratio = Tensor::From<float>({}, {0.5f});
  Tensor no(Shape{}, DType::kBool), yes(Shape{}, DType::kBool);
  *static_cast<uint8_t*>(no.raw_mutable_data()) = 0;
  *static_cast<uint8_t*>(yes.raw_mutable_data()) = 1;
  const Plan plan = PlanOf(def, {x, ratio, no}, true, {1, 2});
  REQUIRE(RunsOnDevice(plan));
  const std::vector<Tensor> y = Run(plan, def, {x, ratio, no}, {1, 2});
  CHECK(y[0].ToVector<float>() == x.ToVector<float>());
  CHECK(Numbers(y[1]) == std::vector<double>(11, 1));
  CHECK_FALSE(RunsOnDevice(PlanOf(def, {x, ratio, yes}, true, {1, 2})));
  CHECK_FALSE(RunsOnDevice(PlanOf(def, {x, ratio, no}, true, {1})));
  CHECK_FALSE(RunsOnDevice(PlanOf(def, {x, Tensor::From<float>({}, {1.5f}), no}, true, {1, 2})));
}

TEST_CASE("SumToShape on CUDA sums over every set of axes") {
  const std::pair<Shape, Shape> cases[] = {{{4, 3}, {3}},
                                           {{4, 3}, {4, 1}},
                                           {{4, 3}, {}},
                                           {{4, 3}, {4, 3}},
                                           {{2, 3, 4}, {3, 1}},
                                           {{2, 3, 4}, {2, 1, 4}},
                                           {{0, 3}, {3}},
                                           {{3, 0}, {3, 1}},
                                           {{300, 5}, {5}},
                                           {{5, 300}, {5, 1}},
                                           {{20000}, {}},
                                           {{2, 9000}, {2, 1}},
                                           {{2, 3, 40, 50}, {3, 1, 1}},
                                           {{1, 6}, {6}},
                                           {{70, 2, 70}, {2, 1}}};
  for (const auto& [x, y] : cases)
    for (const float factor : {1.f, 0.5f})
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16})
        CheckAsOnCpu("SumToShape", {Random(x, dtype, 0, 1), Random(y, dtype)}, {{"factor", factor}},
                     20);
}

TEST_CASE("a plan computes a chain of elementwise operators on CUDA by one loop") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64})
    for (const Shape& shape : {Shape{3, 4, 8}, Shape{3, 4, 5}, Shape{3, 4, 1}}) {
      CAPTURE(dtype);
      CAPTURE(shape);
      Graph graph;
      graph.AddInput("x", dtype, shape).AddInput("scale", dtype, {4, 1});
      graph.AddInput("row", dtype, {1, 1, shape[2]}).AddInput("number", dtype, Shape());
      graph.AddNode(OperatorDef("Mul", {"scale", "x"}, {"a"}));
      graph.AddNode(OperatorDef("Elu", {"a"}, {"b"}, {{"alpha", 0.5f}}));
      graph.AddNode(OperatorDef("Sub", {"row", "b"}, {"c"}));
      graph.AddNode(OperatorDef("Sigmoid", {"c"}, {"d"}));
      graph.AddNode(OperatorDef("Div", {"d", "number"}, {"e"}));
      graph.AddNode(OperatorDef("Max", {"e", "x"}, {"y"}));
      graph.AddOutput("y");
      PlanOptions options;
      options.threads = 1;
      const std::vector<NamedTensor> feeds = {{"x", Random(shape, dtype, -1, 1)},
                                              {"scale", Random({4, 1}, dtype)},
                                              {"row", Random({1, 1, shape[2]}, dtype)},
                                              {"number", Random({}, dtype, 1, 2)}};
      Executor on_cpu(Compile(graph, options));
      const std::vector<double> expected = Numbers(on_cpu.Run(feeds).Get("y"));
      options.devices = {kCuda, Device()};
      const Plan plan = Compile(graph, options);
      for (int node = 1; node < 6; ++node)  // of the nodes that the first one's kernel computes
        CHECK(plan.choice(node).computed_by == (dtype == DType::kFloat64 ? -1 : 0));
      Executor executor(plan);
      for (int run = 0; run < 2; ++run) {
        const std::vector<double> found = Numbers(OnHost(executor.Run(feeds).Get("y")));
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i)
          CHECK(found[i] ==
                doctest::Approx(expected[i]).epsilon(dtype == DType::kFloat16 ? 4e-3 : 1e-5));
      }
    }
}

TEST_CASE("a fused node of elementwise operators says what does not fit") {
  const auto message = [](const OperatorDef& def) {
    try {
      detail::ElementChain::Of(def);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Arguments relu = {{"steps", std::vector<std::string>{"Relu"}},
                          {"swapped", std::vector<int64_t>{0}},
                          {"numbers", std::vector<float>{0, 0}}};
  CHECK(message(OperatorDef("FusedElementwise", {"x"}, {"y"}, relu)).empty());
  CHECK(message(OperatorDef("FusedElementwise", {"x", "z"}, {"y"}, relu))
            .find("1 steps, 1 marks of swapped operands, 2 numbers and 2 inputs do not fit") !=
        std::string::npos);
  Arguments unknown = relu;
  unknown.Set("steps", std::vector<std::string>{"Softmax"});
  CHECK_FALSE(message(OperatorDef("FusedElementwise", {"x"}, {"y"}, unknown)).empty());
}

TEST_CASE("operators on CUDA work in the memory of an operand") {
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {4, 3}).AddInput("b", DType::kFloat32, {3});
  graph.AddNode(OperatorDef("Neg", {"a"}, {"na"}));
  graph.AddNode(OperatorDef("Neg", {"b"}, {"nb"}));
  graph.AddNode(OperatorDef("Sum", {"nb", "na", "na"}, {"s"}));
  graph.AddNode(OperatorDef("Abs", {"s"}, {"y"}));
  graph.AddOutput("y");
  PlanOptions options;
  options.threads = 1;
  options.devices = {kCuda, Device()};
  const Plan plan = Compile(graph, options);
  const Tensor a = Random({4, 3}, DType::kFloat32), b = Random({3}, DType::kFloat32);
  Executor executor(plan);
  for (int run = 0; run < 2; ++run) {
    const Tensor y = OnHost(executor.Run({{"a", a}, {"b", b}}).Get("y"));
    for (int64_t i = 0; i < 12; ++i)
      CHECK(y.data<float>()[i] ==
            std::fabs(-b.data<float>()[i % 3] - a.data<float>()[i] - a.data<float>()[i]));
  }
}

}  // namespace elementwise_test
