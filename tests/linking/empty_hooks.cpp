// A header-only program that includes what runs graphs and nothing of what few graphs need: it has
// no passes for standard operators, and what its plans cannot do is an Error that names the header.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "opkit/core/channels_last.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/op/registration.hpp"

using namespace opkit;

class CopyOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Plain).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Plain, CopyOp);

struct FusingOp final : CopyOp {
  using CopyOp::CopyOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {{}}; }
  static std::optional<FusedNode> Fuse(const FusionQuery&) { return {}; }
};
OPKIT_OPERATOR_SCHEMA(Fusing).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Fusing, FusingOp);

struct ImagesOp final : CopyOp {
  using CopyOp::CopyOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = config.output_layouts = {Layout{ChannelsLast(), {}}};
    return {config};
  }
};
OPKIT_OPERATOR_SCHEMA(Images).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Images, ImagesOp);

// The message of the Error that a plan of one node throws; empty if it runs.
std::string Why(const char* op, const PlanOptions& options = {}) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {1, 2, 2, 3});
  graph.AddNode(OperatorDef(op, {"X"}, {"Y"}));
  graph.AddOutput("Y");
  try {
    Executor executor(Compile(graph, options));
    executor.Run({{"X", Tensor::From<float>({1, 2, 2, 3}, std::vector<float>(12, 1.f))}});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

int main() {
  int failed = 0;
  const auto check = [&](const std::string& found, const char* wanted) {
    if (found.find(wanted) != std::string::npos && (*wanted || found.empty())) return;
    std::printf("expected '%s', found '%s'\n", wanted, found.c_str());
    failed = 1;
  };
  check(Why("Plain"), "");
  check(Why("Plain", {.memory = {.release_constants = true}}),
        "");  // of those that were converted: none
  check(Why("Fusing"), "a plan of kernels that have Fuse needs opkit/graph/plan/fusion.hpp");
  check(Why("Images"),
        "a plan of kernels that differ in layout or device needs opkit/graph/plan/converters.hpp");
  std::string passes;
  for (const std::string& name : DefaultPasses().names()) passes += name + " ";
  check(passes, "remove_dead_nodes fold_constants merge_common_subexpressions ");
  return failed;
}
