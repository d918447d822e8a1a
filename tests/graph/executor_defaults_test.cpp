// Inputs with a default: a run reads it unless it is given another tensor.
#include <doctest/doctest.h>

#include <functional>

#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace executor_defaults_test {
using namespace opkit;

namespace {

using Floats = std::vector<float>;

// y = x + w, whatever the shape of w. Records whether its plan knew the data of w.
bool g_knew_w = false;
class AddDefaultOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &w = Input(1);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] = x.data<float>()[i] + w.data<float>()[i % w.numel()];
    return true;
  }
};
OPERATOR_SCHEMA(AddDefault).NumInputs(2).NumOutputs(1).Infer([](InferenceContext& c) {
  g_knew_w = c.input_constant(1) != nullptr;
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
});
REGISTER_CPU_OPERATOR(AddDefault, AddDefaultOp);

// Adds 1 to its input in place.
class BumpDefaultOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    for (int64_t i = 0; i < Input(0).numel(); ++i) Output(0)->mutable_data<float>()[i] += 1;
    return true;
  }
};
OPERATOR_SCHEMA(BumpDefault).NumInputs(1).NumOutputs(1).EnforceInplace({{0, 0}});
REGISTER_CPU_OPERATOR(BumpDefault, BumpDefaultOp);

const Tensor kX = Tensor::From<float>({4}, {1, 2, 3, 4});
const Tensor kW = Tensor::From<float>({2}, {10, 20});

// y = x + w, twice over: z = w + w does not depend on x, and could be computed before any run.
Graph Sum(SymbolicShape of_w = {Dim()}) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {4});
  g.AddInput("w", DType::kFloat32, std::move(of_w));
  g.SetDefault("w", kW);
  g.AddNode(OperatorDef("AddDefault", {"w", "w"}, {"z"}));
  g.AddNode(OperatorDef("AddDefault", {"x", "z"}, {"y"}));
  g.AddOutput("y");
  return g;
}
std::string WhatOf(const std::function<void()>& call) { return ErrorOf(call).what(); }

}  // namespace

TEST_CASE("A run reads the default of an input unless it is given a tensor") {
  for (const SymbolicShape& shape : {SymbolicShape{2}, SymbolicShape{Dim()}}) {
    Executor exec(Compile(Sum(shape), {.threads = 1}));
    CHECK(exec.Run({{"x", kX}}).Get("y").ToVector<float>() == Floats{21, 42, 23, 44});
    CHECK(g_knew_w);
    const Tensor other = Tensor::From<float>({2}, {1, 2});
    CHECK(exec.Run({{"x", kX}, {"w", other}}).Get("y").ToVector<float>() == Floats{3, 6, 5, 8});
    CHECK(!g_knew_w);
    CHECK(exec.Run({{"x", kX}}).Get("y").ToVector<float>() == Floats{21, 42, 23, 44});
  }
  Executor exec(Compile(Sum(), {.threads = 1}));
  const Tensor longer = Tensor::From<float>({4}, {1, 2, 3, 4});
  CHECK(exec.Run({{"x", kX}, {"w", longer}}).Get("y").ToVector<float>() == Floats{3, 6, 9, 12});
}

TEST_CASE("A bound tensor takes the place of a default until it is unbound") {
  Executor exec(Compile(Sum({2}), {.threads = 1}));
  exec.Bind("x", kX);
  exec.Run();
  CHECK(exec.output("y").ToVector<float>() == Floats{21, 42, 23, 44});
  exec.Bind("w", Tensor::From<float>({2}, {1, 2}));
  exec.Run();
  CHECK(exec.output("y").ToVector<float>() == Floats{3, 6, 5, 8});
  exec.Bind("w", Tensor());
  exec.Run();
  CHECK(exec.output("y").ToVector<float>() == Floats{21, 42, 23, 44});
  CHECK(kW.ToVector<float>() == Floats{10, 20});
}

TEST_CASE("Passes fold no default, and keep it") {
  const Plan plan = Compile(Sum({2}), {.threads = 1});
  CHECK(plan.graph().num_nodes() == 2);
  REQUIRE(plan.graph().inputs().size() == 2);
  CHECK(plan.graph().inputs()[1].has_default());
  CHECK(!plan.graph().inputs()[0].has_default());
  CHECK(DefaultPasses().Run(Sum()).FindInput("w")->default_value.ToVector<float>() ==
        Floats{10, 20});
  CHECK(ToString(plan.graph()).find("input w float32[2] with the default") != std::string::npos);
}

TEST_CASE("A default that a run would write to is not read") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {2});
  g.SetDefault("x", kW);
  g.AddNode(OperatorDef("BumpDefault", {"x"}, {"x"}));
  g.AddOutput("x");
  Executor exec(Compile(g, {.threads = 1}));
  CHECK(WhatOf([&] { exec.Run(); }).find("has a default, but a run writes to it") !=
        std::string::npos);
  CHECK(kW.ToVector<float>() == Floats{10, 20});
  const Tensor own = Tensor::From<float>({2}, {1, 2});
  exec.Run({{"x", own}});
  CHECK(own.ToVector<float>() == Floats{2, 3});
  PlanOptions options;
  options.threads = 1;
  options.memory.donated_inputs = {"w"};
  Executor donated(Compile(Sum({2}), options));
  CHECK(WhatOf([&] {
          donated.Run({{"x", kX}});
        }).find("but a run writes to it") != std::string::npos);
}

TEST_CASE("Outputs cannot be bound to the memory of a default") {
  Graph g = Sum({2});
  g.SetDefault("x", kX);
  Executor exec(Compile(g, {.threads = 1}));
  CHECK(WhatOf([&] { exec.Bind("y", kX); }).find("the default of input 'x'") != std::string::npos);
}

TEST_CASE("A default that a run could not be given is an Error, and changes nothing") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {2, Dim()});
  g.AddConstant("c", kW);
  const auto refused = [&](std::string_view name, const Tensor& value, ErrorCode code) {
    const Error error = ErrorOf([&] { g.SetDefault(name, value); });
    CHECK(error.code() == code);
    CHECK(!g.inputs()[0].has_default());
    return std::string(error.what());
  };
  CHECK(refused("y", kW, ErrorCode::kNotFound).find("no input 'y'") != std::string::npos);
  refused("c", kW, ErrorCode::kNotFound);
  refused("x", Tensor(), ErrorCode::kUninitialized);
  refused("x", kW, ErrorCode::kInvalidArgument);
  refused("x", Tensor::From<int64_t>({2, 1}, {1, 2}), ErrorCode::kTypeMismatch);
  g.SetDefault("x", Tensor::From<float>({2, 1}, {1, 2}));
  CHECK(g.inputs()[0].has_default());
  Graph copy;
  copy.AddInput(g.inputs()[0]);
  CHECK(copy.inputs()[0].default_value.raw_data() == g.inputs()[0].default_value.raw_data());
  CHECK_THROWS_AS(copy.AddInput({"z", {DType::kInt64, {2}}, kW}), Error);
  CHECK(copy.inputs().size() == 1);
}

}  // namespace executor_defaults_test
