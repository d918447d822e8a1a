#include "opkit/graph/tune/node_times.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/plan/converters.hpp"
#include "opkit/op/registration.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace node_times_test {
namespace {

using namespace opkit;

int64_t g_now = 0;
class CountedClock final : public TimingClock {
 public:
  int64_t Now() override { return g_now; }
};

class WaitOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    g_now += Arg<int64_t>("ns");
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(NodeTimesWait)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<int64_t>("ns", "", 0);
REGISTER_CPU_OPERATOR(NodeTimesWait, WaitOp);

}  // namespace

TEST_CASE("each node and converter has the times of its runs") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("InLayouts", {"X"}, {"P"}).Arg("a", "A"));
  graph.AddNode(OperatorDef("NodeTimesWait", {"P"}, {"Q"}).Arg("ns", 300));
  graph.AddNode(OperatorDef("NodeTimesWait", {"Q"}, {"Y"}).Arg("ns", 500));
  graph.AddOutput("Y");
  Executor executor(Compile(graph, {.threads = 1}));
  const Tensor x = Tensor::From<float>({4}, {1, 2, 3, 4});
  executor.Run({{"X", x}});
  CountedClock clock;
  {
    detail::NodeTimes times(executor, clock);
    REQUIRE(times.rows().size() == 4);  // three nodes and the converter before the first
    executor.Run({{"X", x}});
    times.EndRun(false);
    for (int run = 0; run < 2; ++run) {
      executor.Run({{"X", x}});
      times.EndRun(true);
    }
    for (const detail::NodeTimes::Row& row : times.rows()) {
      const std::string name = row.specialization->view().graph().node(row.node).outputs()[0];
      CAPTURE(name);
      const double expected = name == "Q" ? 300 : name == "Y" ? 500 : 0;
      CHECK(row.ns == std::vector<double>{expected, expected});
    }
  }
  CHECK(executor.op(1).NumObservers() == 0);
}

TEST_CASE("keys are equal for equal work alone") {
  const TensorInfo x(DType::kFloat32, {2, 3}), y(DType::kFloat32, {3});
  const auto key = [](const OperatorDef& def, const TensorInfo& in) {
    return detail::WorkKey(def, std::vector{in}, std::vector{in});
  };
  const OperatorDef relu("Relu", {"X"}, {"Y"});
  CHECK(key(relu, x) == "Relu ( float32[2, 3]) -> ( float32[2, 3])");
  CHECK(key(OperatorDef("Relu", {"A"}, {"B"}), x) == key(relu, x));
  CHECK(key(relu, y) != key(relu, x));
  CHECK(key(OperatorDef("Relu", {"X"}, {"Y"}).Arg("b", 1).Arg("a", 2), x) ==
        key(OperatorDef("Relu", {"X"}, {"Y"}).Arg("a", 2).Arg("b", 1), x));
  CHECK(key(OperatorDef("Relu", {"X"}, {"Y"}).Arg("a", 3), x) !=
        key(OperatorDef("Relu", {"X"}, {"Y"}).Arg("a", 2), x));
  Kernel kernel;
  kernel.backend = "eigen";
  KernelConfig config;
  CHECK(detail::WayKey(kernel, {}, config) == "eigen on cpu, standard");
  config.output_layouts = {Layout{test_layouts::LayoutA(), {}}};
  config.variant = "quick";
  CHECK(detail::WayKey(kernel, {}, config) == "eigen on cpu, standard -> A, quick");
  CHECK(detail::ConversionKey(x, {}, {config.output_layouts[0], {}}) ==
        "convert float32[2, 3] from standard on cpu to A on cpu");
}

}  // namespace node_times_test
