// How the steps of a plan are run: under which invocation, and where their outputs are afterwards.
#include "opkit/graph/plan/bound_plan.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "opkit/graph.hpp"
#include "opkit/op/observers.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace bound_plan_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;
constexpr int kNodes = 40;
// By node; each is written by one operator of a run.
std::vector<Invocation> g_seen(kNodes);
int g_fails = -1;

class RecordInvocationOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  RecordInvocationOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), node_(GetSingleArgument<int>("node", 0)) {}
  bool RunOnDevice() override {
    g_seen[detail::Index(node_)] = CurrentInvocation();
    if (node_ == g_fails) throw Error(ErrorCode::kOutOfRange, "told to");
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }

 private:
  int node_;
};
OPERATOR_SCHEMA(RecordInvocation)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("node", "")
    .Stateful()
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RecordInvocation, RecordInvocationOp);

// Writes to its output by a pointer from before the plan was made.
class KeptOutputOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  KeptOutputOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), y_(Output(0)) {}
  bool RunOnDevice() override {
    *y_ = Input(0);  // a view of the input
    return true;
  }

 private:
  Tensor* y_;
};
OPERATOR_SCHEMA(KeptOutput).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(KeptOutput, KeptOutputOp);

// Makes as many elements as its attribute says, whatever its schema infers.
class MakesOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  MakesOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws),
        dtype_(static_cast<DType>(GetSingleArgument("dtype", 0))),
        shape_(GetRepeatedArgument<int64_t>("shape")) {}
  bool RunOnDevice() override {
    std::memset(Output(0, shape_, dtype_)->raw_mutable_data(), 0,
                static_cast<size_t>(Output(0)->nbytes()));
    return true;
  }

 private:
  DType dtype_;
  Shape shape_;
};
OPERATOR_SCHEMA(Makes)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("shape", "")
    .Arg("dtype", "")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Makes, MakesOp);

// Nodes in four chains.
Graph Chains() {
  Graph g;
  g.AddInput("X", kFloat, {2});
  for (int i = 0; i < kNodes; ++i)
    g.AddNode(OperatorDef("RecordInvocation")
                  .Input(i < 4 ? "X" : StrCat("v", i - 4))
                  .Output(StrCat("v", i))
                  .Arg("node", i));
  for (int i = kNodes - 4; i < kNodes; ++i) g.AddOutput(StrCat("v", i));
  return g;
}

TEST_CASE("each operator of a run has an invocation of its own under that of the run") {
  for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
    CAPTURE(ToString(mode));
    Executor exec(Compile(Chains(), {.threads = 2, .schedule = {.mode = mode}}));
    const Tensor x = Tensor::From<float>({2}, {1, 2});
    std::set<uint64_t> ids, runs;
    const auto record = [&] {
      runs.insert(g_seen[0].parent);
      for (const Invocation& seen : g_seen) {
        CHECK(seen.parent == g_seen[0].parent);
        CHECK(seen.kind == Invocation::Kind::kOperator);
        ids.insert(seen.id);
      }
    };
    exec.Run({{"X", x}});
    record();
    exec.Run({{"X", x}});
    record();
    {
      const InvocationScope scope(Invocation::Kind::kUserCode);
      const Invocation caller = CurrentInvocation();
      exec.Run({{"X", x}});
      record();
      CHECK(CurrentInvocation() == caller);
      ids.insert(caller.id);
    }
    CHECK(runs.size() == 3);
    ids.insert(runs.begin(), runs.end());
    CHECK(ids.size() == 3 * kNodes + 1 + 3);
    CHECK(ids.count(0) == 0);
    CHECK(CurrentInvocation() == Invocation{});
  }
}

TEST_CASE("the caller's invocation is its own again after a run that failed") {
  Executor exec(Compile(Chains(), {.threads = 1}));
  const InvocationScope scope(Invocation::Kind::kUserCode);
  const Invocation caller = CurrentInvocation();
  g_fails = 7;
  const Error error = ErrorOf([&] { exec.Run({{"X", Tensor::From<float>({2}, {1, 2})}}); });
  g_fails = -1;
  CHECK(Contains(error.what(), "RecordInvocation (v3) -> (v7)"));
  CHECK(CurrentInvocation() == caller);
}

TEST_CASE("observers of a plan's operator see the invocation that they observe") {
  class Observer : public ObserverBase<OperatorBase> {
   public:
    using ObserverBase<OperatorBase>::ObserverBase;
    void Start() override { started = CurrentInvocation(); }
    void Stop(bool) override { stopped = CurrentInvocation(); }
    Invocation started, stopped;
  };
  Executor exec(Compile(Chains(), {.threads = 1}));
  auto* observer = new Observer(&exec.op(5));
  exec.op(5).AttachObserver(std::unique_ptr<ObserverBase<OperatorBase>>(observer));
  exec.Run({{"X", Tensor::From<float>({2}, {1, 2})}});
  CHECK(observer->started.id != 0);
  CHECK(observer->started == g_seen[5]);
  CHECK(observer->stopped == g_seen[5]);
}

TEST_CASE("an output that contradicts its inference is an error that names both") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto wrong = [&](std::vector<int64_t> shape, DType dtype, const std::string& made) {
    const std::string both = StrCat("' ", made, ", where its inference says float32[2, 3]");
    const Arguments args{{"shape", shape}, {"dtype", static_cast<int>(dtype)}};
    CHECK(Contains(ErrorOf([&] { Invoke("Makes", {x}, args); }).what(), both));
    for (const bool planned : {false, true}) {
      Graph g;
      g.AddInput("X", kFloat, {2, 3});
      g.AddNode(OperatorDef("Makes", {"X"}, {"Y"}, args));
      if (planned) g.AddNode(OperatorDef("Scale").Input("Y").Output("Z").Arg("scale", 2.f));
      g.AddOutput(planned ? "Z" : "Y");
      Executor exec(Compile(g, {.threads = 1}));
      for (int run = 0; run < 2; ++run)
        CHECK(Contains(ErrorOf([&] { exec.Run({{"X", x}}); }).what(), both));
    }
  };
  wrong({7}, kFloat, "float32[7]");
  wrong({3, 2}, kFloat, "float32[3, 2]");
  wrong({2, 3}, DType::kInt32, "int32[2, 3]");
  CHECK(Invoke("Makes", {x},
               {{"shape", std::vector<int64_t>{2, 3}}, {"dtype", static_cast<int>(kFloat)}})[0]
            .numel() == 6);
}

TEST_CASE("an output that is moved by a pointer kept from the constructor goes to its place") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Scale").Input("X").Output("A").Arg("scale", 2.f));
  g.AddNode(OperatorDef("KeptOutput").Input("A").Output("B"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("C").Arg("scale", 10.f));  // in place over A
  g.AddNode(OperatorDef("Add").Input("B").Input("C").Output("Y"));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 1}));
  for (int run = 0; run < 3; ++run) {
    const auto out = exec.Run({{"X", Tensor::From<float>({2}, {1, 2})}});
    CHECK(FloatsOf(out.Get("Y")) == Floats{22, 44});
  }
}

}  // namespace
}  // namespace bound_plan_test
