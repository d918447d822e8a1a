
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <thread>

#include "check_outputs.hpp"
#include "opkit/core/dlpack.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/observers.hpp"
#include "random_graph.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"

namespace executor_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;

std::unique_ptr<Executor> g_executor;
std::string g_again;

// Uses the executor that it runs in.
class RunAgainOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    if (g_again == "run") g_executor->Run();
    if (g_again == "given") g_executor->Run({{"X", Input(0)}});
    if (g_again == "bind") g_executor->Bind("X", Input(0));
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(RunAgain).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RunAgain, RunAgainOp);

// Leaves its result in another tensor, though it may write in place.
class ReplaceOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Tensor next = Input(0).Contiguous();
    for (int64_t i = 0; i < next.numel(); ++i) next.mutable_data<float>()[i] += 1;
    SetOutputTensor(0, next);
    return true;
  }
};
OPERATOR_SCHEMA(Replace).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Replace, ReplaceOp);

// The first input where the second is 1, else its negation. No inference, so that no plan has
// memory for it.
class ViewOrNegationOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    if (Input(1).data<float>()[0] == 1) {
      OutputTensorAlias(0, x);
      return true;
    }
    float* y = Output(0, x.shape(), kFloat)->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) y[i] = -x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(ViewOrNegation).NumInputs(2).NumOutputs(1);
REGISTER_CPU_OPERATOR(ViewOrNegation, ViewOrNegationOp);

// Y = relu(2 x) + 3 relu(2 x)
Graph Diamond(SymbolicShape shape) {
  Graph g;
  g.AddInput("X", kFloat, std::move(shape));
  g.AddNode(OperatorDef("Scale").Input("X").Output("S").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Relu").Input("S").Output("A"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("B").Arg("scale", 3.f));
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  g.AddOutput("Y");
  return g;
}

Graph OneNode(OperatorDef def, SymbolicShape shape = {3}) {
  Graph g;
  g.AddInput("X", kFloat, std::move(shape));
  g.AddNode(std::move(def.Input("X").Output("Y")));
  g.AddOutput("Y");
  return g;
}

std::vector<NamedTensor> Named(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < inputs.size(); ++i) {
    named.push_back({graph.inputs()[i].name, Tensor()});
    named.back().tensor.CopyFrom(inputs[i]);
  }
  return named;
}

}  // namespace

TEST_CASE("a run computes the graph's outputs and gives them by name") {
  Executor exec(Compile(Diamond({3}), {.threads = 2}));
  const auto out = exec.Run({{"X", Vector({1, -2, 3})}});
  CHECK(FloatsOf(out.Get("Y")) == Floats{8, 0, 24});
  CHECK(out.size() == 1);
  CHECK(Contains(ErrorOf([&] { out.Get("Z"); }).what(), "there is no output 'Z'"));
  const std::map<std::string, Tensor> inputs{{"X", Vector({1, 1, 1})}};
  CHECK(FloatsOf(exec.Run(inputs).Get("Y")) == Floats{8, 8, 8});
}

TEST_CASE("results of a run are found by name and by position, and can be looped over") {
  Executor exec(Compile(OneNode(OperatorDef("Relu"), {2}), {.threads = 1}));
  const NamedTensors out = exec.Run({{"X", Vector({-1, 2})}});
  CHECK(out.Find("Y") == &out.Get("Y"));
  CHECK(FloatsOf(out.Get("Y")) == Floats{0, 2});
  CHECK(&out[0] == &out.Get("Y"));
  CHECK(out.Has("Y"));
  CHECK(!out.Has("X"));
  CHECK(!out.Find("X"));
  CHECK(
      Contains(ErrorOf([&] { out.Get("y"); }).what(), "there is no output 'y' (did you mean 'Y'?"));
  CHECK(Contains(ErrorOf([&] { out[1]; }).what(), "there is no output 1: the graph has 1 outputs"));
  for (const auto& [name, tensor] : out) {
    CHECK(name == "Y");
    CHECK(&tensor == out.Find(name));
  }
}

TEST_CASE("a plan has each node's kernel and each value's type") {
  const Plan plan = Compile(Diamond({3}), {.threads = 2});
  CHECK(Contains(ToString(plan), "plan of 4 nodes on 2 threads"));
  CHECK(Contains(ToString(plan), "0 Scale (X) -> (S): reference, "));
  CHECK(plan.type("B").shape == SymbolicShape{3});
  CHECK(plan.choice(0).kernel->op == "Scale");
}

TEST_CASE("an executor explains its mode, and the plan has that explanation from then on") {
  const Plan plan = Compile(Diamond({3}), {.threads = 2});
  CHECK(Contains(ToString(plan), "mode: no executor has been made yet"));
  Executor exec(plan);
  exec.Run({{"X", Vector({1, -2, 3})}});
  CHECK(Contains(exec.ExplainMode(), "walk: the graph is a chain"));
  CHECK(Contains(ToString(plan), "mode: walk: the graph is a chain"));
}

TEST_CASE("random graphs equal a run of node after node, to the bit") {
#ifdef OPKIT_TESTS_THREAD_SANITIZER  // one thread has no race
  constexpr int kThreads[] = {2, 8};
#else
  constexpr int kThreads[] = {1, 2, 8};
#endif
  const PlanOptions::MemoryOptions short_search{.search = {.max_steps = Rounds(10'000)}};
  for (uint64_t seed = 1; seed <= 42; ++seed) {
    RandomGraphOptions random;
    random.nodes = 5 + static_cast<int>(seed % 7) * 12;
    random.rewrites = seed % 3 == 0;
    random.shuffled = seed % 3 == 1;
    random.controls = seed % 2 == 0;
    random.window = seed % 5 == 0 ? 3 : 0;
    const Graph graph = RandomGraph(seed, random);
    const auto inputs = RandomInputs(graph, seed);
    const auto expected = RunInOrder(graph, inputs);
    for (int threads : kThreads)
      for (ReplayMode mode :
           {ReplayMode::kAuto, ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
        INFO("seed ", seed, " threads ", threads, " mode ", std::string(ToString(mode)));
        Executor exec(Compile(
            graph, {.threads = threads, .schedule = {.mode = mode}, .memory = short_search}));
        for (int run = 0; run < 2; ++run) CheckOutputs(exec.Run(Named(graph, inputs)), expected);
      }
    INFO("seed ", seed);
    Executor in_order(Compile(
        graph, {.threads = 2, .schedule = {.deterministic = true}, .memory = short_search}));
    CheckOutputs(in_order.Run(Named(graph, inputs)), expected);
    Executor later(Compile(graph, {.threads = 2, .memory = short_search}));
    for (const NamedTensor& input : Named(graph, inputs)) later.Bind(input.name, input.tensor);
    later.RunAsync().Finish();
    CheckOutputs(later.outputs(), expected);
  }
}

TEST_CASE("bound inputs and outputs are used where they are") {
  Executor exec(Compile(Diamond({3}), {.threads = 1}));
  Tensor x = Vector({1, 2, 3}), y = Vector({0, 0, 0});
  const float* memory = y.data<float>();
  exec.Bind("X", x);
  exec.Bind("Y", y);
  exec.Run();
  CHECK(FloatsOf(y) == Floats{8, 16, 24});
  x.mutable_data<float>()[0] = 2;
  exec.Run();
  CHECK(FloatsOf(y) == Floats{16, 16, 24});
  CHECK(y.data<float>() == memory);
  CHECK(exec.output("Y").data<float>() == memory);

  exec.Bind("Y", Tensor());  // unbound: results are the executor's again
  exec.Run();
  CHECK(exec.output("Y").data<float>() != memory);
  CHECK(FloatsOf(exec.output("Y")) == Floats{16, 16, 24});
  exec.Bind("X", Tensor());
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(),
                 "input 'X' of the graph has no tensor; call Run({{\"X\", tensor}}) or Bind"));
}

TEST_CASE("memory of another library is read and written through DLPack") {
  Executor exec(Compile(Diamond({2}), {.threads = 1}));
  float in[] = {1, 2}, out[] = {0, 0};
  Tensor x = Tensor::FromExternal(in, {2}), y = Tensor::FromExternal(out, {2});
  exec.Bind("X", FromDLPack(ToDLPack(x)));
  exec.Bind("Y", FromDLPack(ToDLPack(y)));
  exec.Run();
  CHECK(out[0] == 8);
  CHECK(out[1] == 16);
}

TEST_CASE("a result stays as it was while its caller holds it") {
  Executor exec(Compile(Diamond({1}), {.threads = 1}));
  const Tensor first = exec.Run({{"X", Vector({1})}}).Get("Y");
  const Tensor second = exec.Run({{"X", Vector({2})}}).Get("Y");
  CHECK(FloatsOf(first) == Floats{8});
  CHECK(FloatsOf(second) == Floats{16});
}

TEST_CASE("a result that its caller has dropped is memory for the next one") {
  Executor exec(Compile(Diamond({1}), {.threads = 1}));
  exec.Bind("X", Vector({1}));
  exec.Run();
  const float* memory = exec.output("Y").data<float>();
  exec.Run();
  CHECK(exec.output("Y").data<float>() == memory);
}

TEST_CASE("outputs that operators forward have memory of their own") {
  Graph g;  // Identity's output shares its input's memory
  g.AddInput("X", kFloat, {2});
  g.AddConstant("W", Vector({5, 6}));
  g.AddNode(OperatorDef("Identity").Input("X").Output("OfInput"));
  g.AddNode(OperatorDef("Identity").Input("W").Output("OfConstant"));
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Identity").Input("A").Output("OfPlanned"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("Last").Arg("scale", 2.f));
  for (const char* name : {"OfInput", "OfConstant", "OfPlanned", "Last", "X", "W"})
    g.AddOutput(name);
  const PassList no_passes;
  Executor exec(Compile(g, {.threads = 1, .passes = &no_passes}));
  const Tensor x = Vector({1, 2});
  for (int run = 0; run < 2; ++run) {
    const auto out = exec.Run({{"X", x}});
    CHECK(FloatsOf(out.Get("OfInput")) == Floats{1, 2});
    CHECK(FloatsOf(out.Get("OfConstant")) == Floats{5, 6});
    CHECK(FloatsOf(out.Get("OfPlanned")) == Floats{1, 2});
    CHECK(FloatsOf(out.Get("Last")) == Floats{2, 4});
    CHECK_FALSE(out.Get("OfInput").SharesMemoryWith(x));
    CHECK_FALSE(out.Get("OfConstant").SharesMemoryWith(*g.FindConstant("W")));
    CHECK(out.Get("X").SharesMemoryWith(x));  // outputs that are inputs are those tensors
    CHECK(FloatsOf(out.Get("W")) == Floats{5, 6});
    const Tensor kept = out.Get("OfPlanned");
    exec.Run({{"X", Vector({8, 9})}});
    CHECK(FloatsOf(kept) == Floats{1, 2});
  }
  Tensor bound = Vector({0, 0});
  exec.Bind("OfInput", bound);
  exec.Run({{"X", x}});
  CHECK(FloatsOf(bound) == Floats{1, 2});
  CHECK(Contains(ErrorOf([&] { exec.Bind("W", bound); }).what(), "cannot be bound"));
}

TEST_CASE("the data decides a shape") {
  Graph g;
  g.AddInput("X", kFloat, {4});
  g.AddNode(OperatorDef("Relu").Input("X").Output("R"));
  g.AddNode(OperatorDef("Positives").Input("R").Output("P"));
  g.AddNode(OperatorDef("Scale").Input("P").Output("Q").Arg("scale", 2.f));
  g.AddOutput("Q");
  Executor exec(Compile(g, {.threads = 2}));
  CHECK(FloatsOf(exec.Run({{"X", Vector({1, -2, 3, 0})}}).Get("Q")) == Floats{2, 6});
  CHECK(FloatsOf(exec.Run({{"X", Vector({1, 2, 3, 4})}}).Get("Q")) == Floats{2, 4, 6, 8});
  CHECK(FloatsOf(exec.Run({{"X", Vector({-1, 0, 0, 0})}}).Get("Q")) == Floats{});
  exec.Bind("Q", Vector({0, 0}));
  CHECK(FloatsOf(exec.Run({{"X", Vector({1, -2, 3, 0})}}).Get("Q")) == Floats{2, 6});
  const Error other = ErrorOf([&] { exec.Run({{"X", Vector({1, 2, 3, 0})}}); });
  CHECK(Contains(other.what(), "output 'Q' came out as float32[3] on cpu, but the tensor bound"));
}

TEST_CASE("a node that rewrites an input of the graph writes to the caller's memory") {
  Graph g;
  g.AddInput("T", kFloat, {2});
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Scale").Input("T").Output("Before").Arg("scale", 1.f));
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  g.AddNode(OperatorDef("Scale").Input("T").Output("After").Arg("scale", 1.f));
  g.AddOutput("Before");
  g.AddOutput("After");
  Executor exec(Compile(g, {.threads = 2}));
  Tensor total = Vector({1, 2});
  auto out = exec.Run({{"T", total}, {"X", Vector({10, 20})}});
  CHECK(FloatsOf(total) == Floats{11, 22});
  CHECK(FloatsOf(out.Get("Before")) == Floats{1, 2});
  CHECK(FloatsOf(out.Get("After")) == Floats{11, 22});
  const Tensor wide = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  CHECK(Contains(ErrorOf([&] {
                   exec.Bind("T", wide.Slice(1, 0, 1).Permute({1, 0}).Slice(0, 0, 1));
                 }).what(),
                 "[1, 2]"));
}

TEST_CASE("an input with strides is read through a dense copy, afresh in every run") {
  Executor exec(Compile(OneNode(OperatorDef("Scale").Arg("scale", 2.f), {2, 2}), {.threads = 1}));
  Tensor matrix = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  exec.Bind("X", matrix.Permute({1, 0}));
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{2, 6, 4, 8});
  matrix.mutable_data<float>()[0] = 5;
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{10, 6, 4, 8});
  exec.Bind("X", matrix);
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{10, 4, 6, 8});
}

TEST_CASE("the dense copy of an input stays as it was while a caller holds it as an output") {
  Graph g;
  g.AddInput("X", kFloat, {2, 2});
  g.AddNode(OperatorDef("Identity", {"X"}, {"view"}));
  g.AddOutput("X").AddOutput("view");
  Executor exec(Compile(g, {.threads = 1}));
  const auto transposed = [](float first) {
    return Tensor::From<float>({2, 2}, {first, first + 1, first + 2, first + 3}).Permute({1, 0});
  };
  const NamedTensors held = exec.Run({{"X", transposed(1)}});
  const NamedTensors next = exec.Run({{"X", transposed(100)}});
  CHECK(FloatsOf(held.Get("X")) == Floats{1, 3, 2, 4});
  CHECK(FloatsOf(held.Get("view")) == Floats{1, 3, 2, 4});
  CHECK(FloatsOf(next.Get("X")) == Floats{100, 102, 101, 103});
}

TEST_CASE("inputs that contradict the graph are refused before anything runs") {
  Executor exec(Compile(Diamond({Sym("N"), 2}), {.threads = 1}));
  const Tensor good = Tensor::From<float>({1, 2}, {1, 2});
  CHECK(FloatsOf(exec.Run({{"X", good}}).Get("Y")) == Floats{8, 16});
  const Error shape = ErrorOf([&] { exec.Run({{"X", Vector({1, 2})}}); });
  CHECK(shape.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(shape.what(),
                 "input 'X' of the graph is float32[N, 2], but the tensor given is float32[2]"));
  const Error dtype = ErrorOf([&] { exec.Bind("X", Tensor::From<int32_t>({1, 2}, {1, 2})); });
  CHECK(dtype.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(ErrorOf([&] {
                   exec.Run({{"Z", good}});
                 }).what(),
                 "the graph has no input or output 'Z' ("));
  CHECK(ErrorOf([&] { exec.Run({{"X", Tensor()}}); }).code() == ErrorCode::kUninitialized);
  CHECK(ErrorOf([&] { exec.Run(); }).code() == ErrorCode::kInvalidArgument);
  exec.Bind("Y", Vector({1}));
  CHECK(Contains(ErrorOf([&] {
                   exec.Run({{"X", good}});
                 }).what(),
                 "output 'Y' of the graph is float32[1, 2] on cpu, but the tensor bound to it is"));
  exec.Bind("Y", Tensor());
  CHECK(FloatsOf(exec.Run({{"X", good}}).Get("Y")) == Floats{8, 16});  // nothing has changed
}

TEST_CASE("new input shapes are planned once, and the last few are kept") {
  const Plan plan = Compile(Diamond({Sym("N")}), {.threads = 1, .max_shapes = 2});
  CHECK(Contains(ErrorOf([&] { plan.memory(); }).what(), "it has not run yet"));
  Executor exec(plan);
  CHECK(Contains(ErrorOf([&] { exec.output("Y"); }).what(), "the executor has not run yet"));
  const auto run = [&](int64_t n) {
    Tensor x({n}, kFloat);
    for (int64_t i = 0; i < n; ++i) x.mutable_data<float>()[i] = static_cast<float>(i);
    const Tensor y = exec.Run({{"X", x}}).Get("Y");
    for (int64_t i = 0; i < n; ++i) CHECK(y.data<float>()[i] == 8.f * static_cast<float>(i));
    return &exec.op(0);
  };
  const OperatorBase* three = run(3);
  CHECK(run(3) == three);
  CHECK(plan.memory().arena_bytes > 0);
  CHECK(plan.type("S").shape == SymbolicShape{3});
  const OperatorBase* four = run(4);
  CHECK(plan.type("S").shape == SymbolicShape{4});
  CHECK(run(3) == three);
  CHECK(run(4) == four);
  run(5);  // three goes
  run(6);  // four goes
  run(3);
}

TEST_CASE("where a graph has all shapes, an executor makes its operators before the first run") {
  const Plan plan = Compile(Diamond({3}), {.threads = 1});
  Executor exec(plan);
  const OperatorBase* const before = &exec.op(0);
  exec.Run({{"X", Vector({1, 2, 3})}});
  CHECK(&exec.op(0) == before);
}

TEST_CASE("an observer of a node stays with it when new shapes bring another operator") {
  const Plan plan = Compile(Diamond({Sym("N")}), {.threads = 1, .max_shapes = 1});
  Executor exec(plan);
  CHECK(Contains(ErrorOf([&] { exec.op(0); }).what(),
                 "no operators before its first run, which makes them for its shapes"));
  const auto run = [&](int64_t n) {
    Tensor x({n}, kFloat);
    std::fill_n(x.mutable_data<float>(), n, 1.f);
    exec.Run({{"X", x}});
  };
  run(1);
  auto* times = Observe<TimeObserver>(exec.op(0));
  auto* numbers = Observe<NumericObserver>(exec.op(1));
  run(2);
  auto* runs = Observe<RunCountObserver>(exec.op(0));
  for (int64_t n : {3, 2, 2, 5}) {
    run(n);
    CHECK(numbers->outputs().at(0).shape == Shape{n});
    CHECK(times->subject() == &exec.op(0));
  }
  CHECK(times->runs() == 5);
  CHECK(runs->runs() == 4);
  CHECK(exec.op(0).NumObservers() == 2);
  CHECK(exec.op(0).DetachObserver(times));
  run(3);
  CHECK(runs->runs() == 5);
  CHECK(exec.op(0).NumObservers() == 1);
}

TEST_CASE("observers of a node gather in the operator of the shapes that run") {
  Executor exec(Compile(Diamond({Sym("N")}), {.threads = 1}));
  exec.Run({{"X", Vector({1})}});
  OperatorBase& of_one = exec.op(0);
  exec.Run({{"X", Vector({1, 2})}});
  auto* counts = Observe<RunCountObserver>(exec.op(0));
  auto* before = Observe<RunCountObserver>(of_one);
  exec.Run({{"X", Vector({3})}});
  CHECK(&exec.op(0) == &of_one);
  exec.Run({{"X", Vector({1, 2})}});
  CHECK(counts->runs() == 2);
  CHECK(before->runs() == 2);
  CHECK(of_one.NumObservers() == 0);
}

TEST_CASE("a failing node ends the run with its own error, and the next run works") {
  for (const char* how : {"throw", "false"})
    for (int threads : {1, 2}) {
      Graph g;
      g.AddInput("X", kFloat, {2});
      g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
      g.AddNode(OperatorDef("Fail").Name("bad").Input("A").Output("B").Arg("how", how));
      g.AddNode(OperatorDef("Scale").Input("B").Output("C").Arg("scale", 2.f));
      g.AddOutput("C");
      Executor exec(Compile(g, {.threads = threads}));
      for (int run = 0; run < 2; ++run) {
        const Error error = ErrorOf([&] { exec.Run({{"X", Vector({1, 2})}}); });
        CHECK(Contains(error.what(), "Fail 'bad' (A) -> (B)"));
        if (how == std::string("throw")) CHECK(Contains(error.what(), "it was told to fail"));
      }
      exec.Bind("X", Vector({1, 2}));
      const Event event = exec.RunAsync();
      CHECK(Contains(ErrorOf([&] { event.Finish(); }).what(), "Fail 'bad'"));
    }
}

TEST_CASE("observers of an executor are started and stopped on every path") {
  class Count : public ObserverBase<Executor> {
   public:
    using ObserverBase<Executor>::ObserverBase;
    void Start() override { log += "start "; }
    void Stop(bool succeeded) override { log += succeeded ? "good " : "bad "; }
    std::string log;
  };
  Executor good(Compile(OneNode(OperatorDef("Relu")), {.threads = 1}));
  auto* count = new Count(&good);
  good.AttachObserver(std::unique_ptr<ObserverBase<Executor>>(count));
  good.Run({{"X", Vector({1, 2, 3})}});
  good.Bind("X", Vector({1, 2, 3}));
  good.RunAsync().Finish();
  CHECK(count->log == "start good start good ");

  Executor bad(Compile(OneNode(OperatorDef("Fail")), {.threads = 1}));
  count = new Count(&bad);
  bad.AttachObserver(std::unique_ptr<ObserverBase<Executor>>(count));
  ErrorOf([&] { bad.Run({{"X", Vector({1, 2, 3})}}); });
  bad.Bind("X", Vector({1, 2, 3}));
  bad.RunAsync().state()->Wait({});
  CHECK(count->log == "start bad start bad ");
}

TEST_CASE("executors of one plan run at the same time, each with its own memory") {
  const Graph graph = RandomGraph(7, {.nodes = 40});
  const Plan plan = Compile(graph, {.threads = 2});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Executor exec(plan);
      const auto inputs = RandomInputs(graph, 10 + t);
      const auto expected = RunInOrder(graph, inputs);
      for (int run = 0; run < 20; ++run) {
        size_t i = 0;
        for (const NamedTensor& output : exec.Run(Named(graph, inputs)))
          wrong[t] += FloatsOf(output.tensor) != FloatsOf(expected[i++]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("outputs are those of the last run; after a failed run there are none") {
  Graph g;
  g.AddInput("X", kFloat, {1});
  g.AddNode(OperatorDef("Relu").Input("X").Output("Y"));
  g.AddNode(OperatorDef("Positives").Input("X").Output("P"));
  g.AddNode(OperatorDef("Accumulate").Input("P").Input("X").Output("P"));  // X has one element
  g.AddNode(OperatorDef("Fail").Input("Y").Output("Z").Arg("how", "throw"));
  g.AddOutput("Y");
  g.AddOutput("Z");
  Executor exec(Compile(g, {.threads = 1}));
  ErrorOf([&] { exec.Run({{"X", Vector({7})}}); });
  const Error none = ErrorOf([&] { exec.outputs(); });
  CHECK(none.code() == ErrorCode::kFailedPrecondition);
  CHECK(Contains(none.what(), "output 'Y' has no value"));
  CHECK(ErrorOf([&] { exec.output("Y"); }).code() == ErrorCode::kFailedPrecondition);
}

TEST_CASE("inputs and outputs of another batch size are bound in either order") {
  Executor exec(Compile(Diamond({Sym("N")}), {.threads = 1}));
  exec.Run({{"X", Vector({1, 2})}});
  Tensor y = Vector({0, 0, 0, 0});
  exec.Bind("Y", y);
  exec.Bind("X", Vector({1, 2, 3, 4}));
  exec.Run();
  CHECK(FloatsOf(y) == Floats{8, 16, 24, 32});
  exec.Bind("X", Vector({1, 2}));
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(), "output 'Y' of the graph is float32[2]"));
  exec.Bind("Y", Vector({0, 0}));
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{8, 16});
}

TEST_CASE("calls that are likely a slip are refused") {
  Executor exec(Compile(Diamond({1}), {.threads = 1}));
  CHECK(Contains(ErrorOf([&] {
                   exec.Run({{"X", Vector({1})}, {"X", Vector({2})}});
                 }).what(),
                 "input 'X' is given twice"));
  Graph no_output;
  no_output.AddInput("X", kFloat, {1});
  no_output.AddNode(OperatorDef("Relu").Input("X").Output("Y"));
  CHECK(Contains(ErrorOf([&] { Compile(no_output); }).what(), "the graph has no outputs"));
  PassList dropping;
  dropping.Add("drop", [](Graph) { return Graph(); });
  CHECK(Contains(ErrorOf([&] { Compile(Diamond({1}), {.passes = &dropping}); }).what(),
                 "the pass removed output 'Y' of the graph"));
}

TEST_CASE("an empty graph, and one whose outputs are its inputs, run") {
  Executor empty(Compile(Graph(), {.threads = 2}));
  CHECK(empty.Run({}).size() == 0);
  Graph g;
  g.AddInput("X", kFloat, {1});
  g.AddOutput("X");
  Executor same(Compile(g, {.threads = 1}));
  CHECK(FloatsOf(same.Run({{"X", Vector({4})}}).Get("X")) == Floats{4});
}

TEST_CASE("mistakes in a graph are reported when it is compiled") {
  Graph g = Diamond({3});
  g.AddNode(OperatorDef("Relu").Input("Q").Output("R"));
  CHECK(Contains(ErrorOf([&] { Compile(g); }).what(), "reads 'Q', which no input"));
  Graph shapes;
  shapes.AddInput("X", kFloat, {2, 3});
  shapes.AddInput("Z", kFloat, {2, 3});
  shapes.AddNode(OperatorDef("MatMul").Name("fc").Input("X").Input("Z").Output("Y"));
  shapes.AddOutput("Y");
  CHECK(Contains(ErrorOf([&] { Compile(shapes); }).what(), "cannot multiply [2, 3] by [2, 3]"));
  Graph device = OneNode(OperatorDef("MatMul").Device(DeviceType::kCUDA));
  CHECK(Contains(ErrorOf([&] { Compile(device); }).what(), "MatMul"));
  CHECK(ErrorOf([&] { Compile(Diamond({3}), {.threads = -1}); }).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { Compile(Diamond({3}), {.max_shapes = 0}); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("values that are not live together share memory, and a value is overwritten in place") {
  Graph g;  // a chain: X -> A -> B -> C -> Y
  g.AddInput("X", kFloat, {100});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("B"));
  g.AddNode(OperatorDef("Relu").Input("B").Output("C"));
  g.AddNode(OperatorDef("Relu").Input("C").Output("Y"));
  g.AddOutput("Y");
  for (int threads : {1, 2}) {
    const MemorySummary memory = Compile(g, {.threads = threads}).memory();
    CHECK(memory.planned_values == 3);
    CHECK(memory.inplace_values == 2);
    CHECK(memory.arena_bytes == 448);  // 400 bytes, in steps of 64
    CHECK(memory.lower_bound_bytes == 448);
    CHECK(memory.naive_bytes == 3 * 448);
  }
}

TEST_CASE("an input that is read twice is not overwritten where only one reading allows it") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Sum").Input("A").Input("A").Output("B"));  // only input 0 is in place
  g.AddNode(OperatorDef("Add").Input("B").Input("B").Output("C"));  // both are
  g.AddNode(OperatorDef("Relu").Input("C").Output("Y"));
  g.AddOutput("Y");
  const Plan plan = Compile(g, {.threads = 1});
  CHECK(plan.memory().inplace_values == 1);
  CHECK(FloatsOf(Executor(plan).Run({{"X", Vector({1, 2})}}).Get("Y")) == Floats{4, 8});
}

TEST_CASE("a plan for one thread is walked, though the pool has more by then") {
  const int before = ThreadPool::Global().threads();
  SetNumThreads(1);
  Graph g;
  g.AddInput("X", kFloat, {2});
  for (int i = 0; i < 64; ++i) {
    g.AddNode(OperatorDef("Scale").Input("X").Output(StrCat("A", i)));
    g.AddNode(OperatorDef("Fail")
                  .Arg("how", std::string("work"))
                  .Input(StrCat("A", i))
                  .Output(StrCat("B", i)));
    g.AddOutput(StrCat("B", i));
  }
  const PassList none;
  const Plan plan = Compile(g, {.passes = &none});
  SetNumThreads(4);
  const Executor exec(plan);
  CHECK(Contains(exec.ExplainMode(), "walk: asked for"));  // one place serves all the As
  CHECK(plan.memory().arena_bytes == 64);
  SetNumThreads(before);
}

TEST_CASE("a rewritten value is no view of an input or a constant") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddInput("B", kFloat, {2});
  g.AddConstant("W", Vector({1, 2}));
  g.AddNode(OperatorDef("Identity").Input("X").Output("Y"));
  g.AddNode(OperatorDef("Accumulate").Input("Y").Input("B").Output("Y"));
  g.AddNode(OperatorDef("Identity").Input("W").Output("Z"));
  g.AddNode(OperatorDef("Accumulate").Input("Z").Input("B").Output("Z"));
  g.AddOutput("Y");
  g.AddOutput("Z");
  const PassList none;
  Executor exec(Compile(g, {.threads = 1, .passes = &none}));
  const Tensor x = Vector({1, 2});
  for (int run = 0; run < 2; ++run) {
    const auto out = exec.Run({{"X", x}, {"B", Vector({10, 10})}});
    CHECK(FloatsOf(out.Get("Y")) == Floats{11, 12});
    CHECK(FloatsOf(out.Get("Z")) == Floats{11, 12});
    CHECK(FloatsOf(x) == Floats{1, 2});
  }
}

TEST_CASE("an output that forwarded an input keeps its elements when the input is rewritten") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddInput("B", kFloat, {2});
  g.AddNode(OperatorDef("Identity").Input("X").Output("Y"));
  g.AddNode(OperatorDef("Accumulate").Input("X").Input("B").Output("X"));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 1}));
  const auto out = exec.Run({{"X", Vector({1, 2})}, {"B", Vector({10, 10})}});
  CHECK(FloatsOf(out.Get("Y")) == Floats{1, 2});
}

TEST_CASE("memory that is bound no longer is not written to") {
  Executor exec(Compile(OneNode(OperatorDef("Relu"), {Sym("N")}), {.threads = 1}));
  float memory[3] = {};
  exec.Bind("X", Vector({1, 2, 3}));
  exec.Bind("Y", Tensor::FromExternal(memory, {3}));
  exec.Run();
  CHECK(memory[2] == 3);
  memory[2] = 7;
  SUBCASE("unbound") { exec.Bind("Y", Tensor()); }
  SUBCASE("another is bound") { exec.Bind("Y", Vector({0, 0, 0})); }
  SUBCASE("after runs with other shapes") {
    exec.Bind("Y", Tensor());
    exec.Bind("X", Vector({1, 2}));
    exec.Run();
    exec.Bind("X", Vector({1, 2, 3}));
  }
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{1, 2, 3});
  CHECK(memory[2] == 7);
}

TEST_CASE("an output is not bound over the memory of a constant or an attribute") {
  const Tensor weight = Vector({1, 2}), held = Vector({3, 4}), inner = Vector({5, 6});
  Graph branch;
  branch.AddConstant("k", inner);
  branch.AddOutput("k");
  Graph g;
  g.AddInput("T", kFloat, {2});
  g.AddInput("X", kFloat, {2});
  g.AddConstant("c", weight);
  g.AddNode(OperatorDef("Add", {"X", "c"}, {"Y"}));
  g.AddNode(OperatorDef("Accumulate", {"T", "Y"}, {"T"}));
  g.AddNode(
      OperatorDef("Report", {"Y"}, {}).Arg("held", held).Subgraph("body", MakeSubgraph(branch)));
  g.AddOutput("Y");
  g.AddOutput("T");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor x = Vector({10, 20});
  const auto refusal = [&](auto bind) { return std::string(ErrorOf(bind).what()); };
  CHECK(Contains(refusal([&] { exec.Bind("Y", weight); }),
                 "the tensor bound to output 'Y' shares memory with constant 'c' of the graph"));
  CHECK(Contains(refusal([&] { exec.Bind("Y", held); }), "attribute 'held' of node Report"));
  CHECK(Contains(refusal([&] { exec.Bind("Y", inner); }), "constant 'k' of 'body'"));
  CHECK(Contains(refusal([&] { exec.Bind("T", weight); }),
                 "the tensor given for input 'T' shares memory with constant 'c'"));
  CHECK(Contains(refusal([&] {
                   exec.Run({{"T", weight}, {"X", x}});
                 }),
                 "the tensor given for input 'T' shares memory with constant 'c'"));
  const Tensor sum = Vector({0, 0});
  for (float runs : {1.f, 2.f}) {
    exec.Run({{"T", sum}, {"X", weight}});  // what is only read may be the constant's memory
    CHECK(FloatsOf(exec.output("Y")) == Floats{2, 4});
    CHECK(FloatsOf(sum) == Floats{2 * runs, 4 * runs});
  }
}

TEST_CASE("an output may be bound to an input's memory, but not to another output's") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 10.f));
  g.AddNode(OperatorDef("Add").Input("X").Input("Y").Output("Z"));
  g.AddOutput("Y");
  g.AddOutput("Z");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor x = Vector({1, 2});
  exec.Bind("X", x);
  exec.Bind("Y", x);
  for (float scale : {1.f, 10.f}) {
    exec.Run();
    CHECK(FloatsOf(exec.output("Z")) == Floats{11 * scale, 22 * scale});
    CHECK(FloatsOf(x) == Floats{10 * scale, 20 * scale});
  }
  exec.Bind("Z", x);
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(), "outputs 'Y' and 'Z' share memory"));
}

TEST_CASE("an output that is bound over an input leaves the other outputs as they are") {
  // "view" and "tail" are views of X, over which Y and then the first of the two is bound.
  Graph g;
  g.AddInput("X", kFloat, {4});
  g.AddNode(OperatorDef("Scale", {"X"}, {"Y"}, {{"scale", 2.f}}));
  g.AddNode(OperatorDef("Identity", {"X"}, {"view"}));
  g.AddOutput("Y").AddOutput("view").AddOutput("X");
  for (const bool view_too : {false, true}) {
    Executor exec(Compile(g, {.threads = 1}));
    const Tensor x = Vector({1, 2, 3, 4}), elsewhere = Vector({0, 0, 0, 0});
    exec.Bind("X", x);
    exec.Bind("Y", x);
    if (view_too) exec.Bind("view", elsewhere);
    exec.Run();
    CHECK(FloatsOf(x) == Floats{2, 4, 6, 8});
    CHECK(FloatsOf(exec.output("Y")) == Floats{2, 4, 6, 8});
    CHECK(FloatsOf(exec.output("view")) == Floats{1, 2, 3, 4});
    exec.Run();
    CHECK(FloatsOf(exec.output("Y")) == Floats{4, 8, 12, 16});
    CHECK(FloatsOf(exec.output("view")) == Floats{2, 4, 6, 8});
  }
}

// The transpose of its input, as a view.
class TurnOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return SetOutputTensor(0, Input(0).Permute({1, 0})), true; }
};
OPERATOR_SCHEMA(Turn).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(0)[1], c.input_shape(0)[0]});
});
REGISTER_CPU_OPERATOR(Turn, TurnOp);

TEST_CASE("a view of an input with other strides may be bound over the input") {
  Graph g;
  g.AddInput("X", kFloat, {2, 2});
  g.AddNode(OperatorDef("Turn", {"X"}, {"Y"}));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  exec.Bind("X", x);
  exec.Bind("Y", x);
  exec.Run();
  CHECK(FloatsOf(x) == Floats{1, 3, 2, 4});
  CHECK(FloatsOf(exec.output("Y")) == Floats{1, 3, 2, 4});
}

TEST_CASE("two outputs may be bound over each other's inputs") {
  Graph g;
  g.AddInput("X", kFloat, {2}).AddInput("Z", kFloat, {2});
  g.AddNode(OperatorDef("Identity", {"X"}, {"x"}));
  g.AddNode(OperatorDef("Identity", {"Z"}, {"z"}));
  g.AddOutput("x").AddOutput("z");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor x = Vector({1, 2}), z = Vector({3, 4});
  exec.Bind("X", x);
  exec.Bind("Z", z);
  exec.Bind("x", z);
  exec.Bind("z", x);
  exec.Run();
  CHECK(FloatsOf(x) == Floats{3, 4});
  CHECK(FloatsOf(z) == Floats{1, 2});
}

TEST_CASE("a bound output has the dtype that comes out") {
  Graph g;
  g.AddInput("X", kFloat, {4});
  g.AddNode(OperatorDef("Split").Input("X").Output("A").Output("B"));
  g.AddOutput("A");
  Executor exec(Compile(g, {.threads = 1}));
  exec.Bind("X", Vector({1, 2, 3, 4}));
  exec.Bind("A", Tensor::From<int32_t>({2}, {0, 0}));
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(), "came out as float32[2] on cpu"));
}

TEST_CASE("an input that is rewritten shares its memory with no other") {
  Graph g;
  g.AddInput("T", kFloat, {2});
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  g.AddOutput("T");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor both = Vector({1, 2});
  CHECK(Contains(ErrorOf([&] {
                   exec.Run({{"T", both}, {"X", both}});
                 }).what(),
                 "inputs 'T' and 'X' share memory"));
  CHECK(FloatsOf(both) == Floats{1, 2});
}

TEST_CASE("an executor that is running refuses a second run and to be bound") {
  g_executor =
      std::make_unique<Executor>(Compile(OneNode(OperatorDef("RunAgain")), {.threads = 1}));
  for (const char* what : {"run", "given", "bind"}) {
    g_again = what;
    const Error error = ErrorOf([&] { g_executor->Run({{"X", Vector({1, 2, 3})}}); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.what(),
                   "the executor is running, and runs once at a time: give each thread an executor "
                   "of its own; after RunAsync, wait until its event is finished"));
  }
  g_again = "no";
  CHECK(FloatsOf(g_executor->Run({{"X", Vector({1, 2, 3})}}).Get("Y")) == Floats{1, 2, 3});
  g_executor.reset();
}

TEST_CASE("a rewriting node that makes a new tensor writes to the caller's memory all the same") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Replace").Input("X").Output("X"));
  g.AddNode(OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 10.f));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 1}));
  Tensor x = Vector({1, 2});
  exec.Bind("X", x);
  exec.Run();
  CHECK(FloatsOf(x) == Floats{2, 3});
  x.mutable_data<float>()[0] = 50;
  exec.Run();
  CHECK(FloatsOf(exec.output("Y")) == Floats{510, 40});
}

TEST_CASE("a view that a run has left is not written through in the next one") {
  Graph g;
  for (const char* input : {"X", "never", "V is a view"})
    g.AddInput(input, kFloat, {SymbolicShape(Shape{input[0] == 'X' ? 2 : 1})});
  g.AddNode(OperatorDef("ViewOrNegation", {"X", "never"}, {"U"}));
  g.AddNode(OperatorDef("ViewOrNegation", {"U", "V is a view"}, {"V"}));
  g.AddNode(OperatorDef("ViewOrNegation", {"X", "V is a view"}, {"VX"}));
  g.AddNode(OperatorDef("Replace", {"V"}, {"Y"}));
  g.AddNode(OperatorDef("Replace", {"VX"}, {"YX"}));
  g.AddNode(OperatorDef("Replace", {"U"}, {"W"}).ControlInput("last"));
  g.ReplaceNode(4, OperatorDef(g.node(4)).Name("last"));
  for (const char* output : {"Y", "YX", "W"}) g.AddOutput(output);
  Executor executor(Compile(g));
  const Tensor first = Tensor::From<float>({2}, {1, 2}), second = Tensor::From<float>({2}, {5, 6});
  const auto run = [&](const Tensor& x, float is_view) {
    return executor.Run({{"X", x},
                         {"never", Tensor::From<float>({1}, {0})},
                         {"V is a view", Tensor::From<float>({1}, {is_view})}});
  };
  CHECK(run(first, 1).Get("YX").ToVector<float>() == std::vector<float>{2, 3});
  const NamedTensors found = run(second, 0);
  CHECK(first.ToVector<float>() == std::vector<float>{1, 2});
  CHECK(found.Get("Y").ToVector<float>() == std::vector<float>{6, 7});
  CHECK(found.Get("YX").ToVector<float>() == std::vector<float>{-4, -5});
  CHECK(found.Get("W").ToVector<float>() == std::vector<float>{-4, -5});
}

}  // namespace executor_test
