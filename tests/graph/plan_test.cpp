#include "opkit/graph/plan.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/test_allocator.hpp"

namespace plan_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;

// Fills the scratch that it announces with rubbish and then adds one to its input.
class ScratchOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  ScratchOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {}
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    last_scratch = Scratch(kBytes);
    std::memset(last_scratch, 0x7b, kBytes);
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = x.data<float>()[i] + 1;
    return true;
  }
  static constexpr int64_t kBytes = 1000;
  static inline void* last_scratch = nullptr;
};
OPERATOR_SCHEMA(Scratch).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();

// Takes a node only while `refuses` is not set, by its constructor.
template <bool kRefuses>
class ChoosyOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  ChoosyOp(const OperatorDef& def, Workspace* ws) : Operator<CPUContext>(def, ws) {
    if (kRefuses) throw UnsupportedOperatorFeature("it is choosy today");
  }
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(Choosy).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(Choosy, FIRST, ChoosyOp<true>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Choosy, SECOND, ChoosyOp<false>);

// A backend that takes what is big, and the plain kernel beside it.
class SizedOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
class BigSizedOp final : public SizedOp {
 public:
  using SizedOp::SizedOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const SymbolicShape& x = query.inputs[0].shape;
    if (!x.is_known() || x.ToShape().numel() < 1000)
      throw UnsupportedOperatorFeature("it takes a thousand elements and more");
    return {{}};
  }
};
OPERATOR_SCHEMA(Sized).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Sized, SizedOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Sized, BIG, BigSizedOp);
OPKIT_REGISTER_BACKEND_RANK("BIG", 10);

[[maybe_unused]] const bool registered = [] {
  Kernel kernel;
  kernel.op = "Scratch";
  kernel.file = __FILE__;
  kernel.line = __LINE__;
  kernel.create =
      detail::OperatorCreator([](const OperatorDef& def, Workspace* ws,
                                 const KernelConfig* config) -> std::unique_ptr<OperatorBase> {
        return std::make_unique<ScratchOp>(def, ws, config);
      });
  kernel.propose = [](const KernelQuery&) {
    KernelConfig config;
    config.scratch_bytes = ScratchOp::kBytes;
    config.inplace = {{0, 0}};
    return std::vector<KernelConfig>{config};
  };
  OpRegistry::Global().AddKernel(std::move(kernel));
  return true;
}();

Graph Chain(const std::vector<OperatorDef>& defs) {
  Graph g;
  g.AddInput("v0", kFloat, {64});
  for (size_t i = 0; i < defs.size(); ++i) {
    OperatorDef def = defs[i];
    g.AddNode(def.Input(StrCat("v", i)).Output(StrCat("v", i + 1)));
  }
  g.AddOutput(StrCat("v", defs.size()));
  return g;
}

Tensor Ones() {
  const std::vector<float> ones(64, 1.f);
  return Tensor::From<float>({64}, ones);
}

}  // namespace

TEST_CASE("the scratch of a kernel's configuration is planned beside the values") {
  const Graph g = Chain({OperatorDef("Scratch"), OperatorDef("Scratch"), OperatorDef("Scratch"),
                         OperatorDef("Relu")});
  const Plan plan = Compile(g, {.threads = 1, .memory = {.verify = true}});
  // One value, overwritten in place, and the scratch of one node at a time.
  CHECK(plan.memory().lower_bound_bytes == 256 + 1024);
  CHECK(plan.memory().arena_bytes == 256 + 1024);
  CHECK(plan.memory().inplace_values == 2);
  Executor exec(plan);
  CHECK(exec.Run({{"v0", Ones()}}).Get("v4").data<float>()[63] == 4);
  const auto arena = plan.state()->Latest()->memory().arenas()[0];
  const int64_t offset = arena.OffsetOf(static_cast<size_t>(plan.view().num_values()) + 2);
  CHECK(offset >= 0);
  void* const first = ScratchOp::last_scratch;
  exec.Run({{"v0", Ones()}});
  CHECK(ScratchOp::last_scratch == first);  // and not memory of the operator's own
  Executor other(plan);
  other.Run({{"v0", Ones()}});
  CHECK(ScratchOp::last_scratch != first);
}

TEST_CASE("a kernel whose constructor refuses the node leaves it to the next one") {
  const Plan plan =
      Compile(Chain({OperatorDef("Choosy").Backends("FIRST,SECOND")}), {.threads = 1});
  CHECK(plan.choice(0).kernel->backend == "SECOND");
  Executor first(plan), second(plan);
  CHECK(second.Run({{"v0", Ones()}}).Get("v1").data<float>()[0] == 1);
  CHECK(Contains(ToString(plan), "Choosy (v0) -> (v1): SECOND, "));
}

TEST_CASE("a plan lists better kernels that it passed over, and the reason") {
  const Plan plan = Compile(Chain({OperatorDef("Choosy").Backends("FIRTS,FIRST,SECOND")}));
  CHECK(Contains(plan.choice(0).passed_over,
                 "\n  backend FIRTS: no backend 'FIRTS' has a kernel in this program (did you mean "
                 "'FIRST'?"));
  CHECK(Contains(ToString(plan), "    passed over:\n      backend FIRTS: no backend"));
  CHECK(Contains(ToString(plan), "\n      backend FIRST: it is choosy today\n"));
}

TEST_CASE("strict: a backend that would be passed over is an Error of Compile") {
  const Graph unknown = Chain({OperatorDef("Choosy").Backends("FIRTS,SECOND")});
  CHECK(Compile(unknown).choice(0).kernel->backend == "SECOND");
  const Error error = ErrorOf([&] { Compile(unknown, {.backend_need = kRequired}); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "did you mean 'FIRST'?"));
  // There, but of no use for the node: nothing else takes its place.
  const Graph refused = Chain({OperatorDef("Choosy").Backends("FIRST")});
  CHECK(Compile(refused).choice(0).kernel->backend == "SECOND");
  CHECK(ErrorOf([&] { Compile(refused, {.backend_need = kRequired}); }).code() ==
        ErrorCode::kUnsupported);
  struct Preferring {
    Preferring() { OpRegistry::Global().SetPreference(DeviceType::kCPU, {"FIRTS"}); }
    ~Preferring() { OpRegistry::Global().SetPreference(DeviceType::kCPU, {}); }
  } preferring;
  const Graph plain = Chain({OperatorDef("Relu")});
  CHECK(Contains(ToString(Compile(plain)), "backend FIRTS: no backend 'FIRTS'"));
  CHECK(ErrorOf([&] { Compile(plain, {.backend_need = kRequired}); }).code() ==
        ErrorCode::kNotFound);
}

TEST_CASE("shapes that a plan meets later also run on the preferred backends of Compile") {
  Graph g;
  g.AddInput("x", kFloat, {Sym("N")});
  g.AddNode(OperatorDef("Sized").Input("x").Output("y"));
  g.AddOutput("y");
  const auto backend_of = [](const Plan& plan) {
    Executor(plan).Run({{"x", Tensor({1000}, kFloat)}});
    return plan.choice(0).kernel->backend;
  };
  CHECK(backend_of(Compile(g)) == "BIG");
  OpRegistry::Global().SetPreference(DeviceType::kCPU, {"reference"});
  const Plan preferring = Compile(g);
  OpRegistry::Global().SetPreference(DeviceType::kCPU, {});
  CHECK(backend_of(preferring) == "reference");
  CHECK(backend_of(Compile(g, {.backends = {"reference"}})) == "reference");
  CHECK(backend_of(Compile(g)) == "BIG");
  const Error error =
      ErrorOf([&] { Compile(g, {.backends = {"FIRTS"}, .backend_need = kRequired}); });
  CHECK(error.code() == ErrorCode::kNotFound);
}

TEST_CASE("passes run before anything is planned, and a program may bring its own") {
  Graph g = Chain({OperatorDef("Relu"), OperatorDef("Relu")});
  g.AddNode(OperatorDef("Relu").Input("v0").Output("dead"));
  CHECK(Compile(g).graph().num_nodes() == 2);
  const PassList none;
  CHECK(Compile(g, {.passes = &none}).graph().num_nodes() == 3);
  PassList mine;
  mine.Add("scale_twice", [](Graph graph) {
    graph.ReplaceNode(1, OperatorDef("Scale").Input("v1").Output("v2").Arg("scale", 2.f));
    return graph;
  });
  CHECK(Executor(Compile(g, {.passes = &mine})).Run({{"v0", Ones()}}).Get("v2").data<float>()[0] ==
        2);
}

TEST_CASE("the plan's memory is drawn with the names of the values") {
  const Plan plan = Compile(
      Chain({OperatorDef("Scratch"), OperatorDef("Relu"), OperatorDef("Scale").Arg("scale", 2.f)}),
      {.threads = 1});
  const std::string svg = ToSvg(plan);
  CHECK(Contains(svg, "<svg"));
  CHECK(Contains(svg, "v1 = v2"));
  CHECK(Contains(svg, "scratch of step 0"));
  CHECK(Contains(svg, "Memory of 3 nodes on cpu"));
  CHECK(Contains(ErrorOf([&] {
                   ToSvg(plan, {DeviceType::kCUDA, 0});
                 }).what(),
                 "no memory on cuda"));
}

TEST_CASE("a plan without known shapes describes the facts that hold for any shape") {
  Graph g;
  g.AddInput("X", kFloat, {Sym("N"), 3});
  g.AddNode(OperatorDef("Relu").Input("X").Output("Y"));
  g.AddOutput("Y");
  const Plan plan = Compile(g);
  CHECK(ToString(plan) ==
        StrCat("plan of 1 nodes on ", plan.threads(), plan.threads() == 1 ? " thread" : " threads",
               "\n  kernels and memory: with the first run, since shapes of inputs are open\n"
               "  Relu (X) -> (Y): float32[N, 3]\n"));
  CHECK(ToString(plan.type("Y")) == "float32[N, 3]");
  CHECK(ErrorOf([&] { plan.type("y"); }).code() == ErrorCode::kNotFound);
  CHECK_FALSE(plan.has_shapes());
  CHECK(ErrorOf([&] { plan.memory(); }).code() == ErrorCode::kFailedPrecondition);
  CHECK(ErrorOf([&] { plan.choice(0); }).code() == ErrorCode::kFailedPrecondition);
  CHECK(ErrorOf([&] { ToSvg(plan); }).code() == ErrorCode::kFailedPrecondition);
  Executor(plan).Run({{"X", Tensor::From<float>({1, 3}, {1, 2, 3})}});
  CHECK(plan.has_shapes());
  CHECK(plan.types()[plan.view().FindValue("Y")].shape == Shape{1, 3});
  CHECK(ToString(plan.type("Y")) == "float32[1, 3]");
}

TEST_CASE("a plan has the values that Compile has computed") {
  Graph g;
  g.AddConstant("C", Ones());
  g.AddNode(OperatorDef("Relu").Input("C").Output("Y"));
  g.AddOutput("Y");
  const std::string text = ToString(Compile(g));
  CHECK(Contains(text, "plan of 0 nodes"));
  CHECK(Contains(text, "\n  known before any run: Y float32["));
}

TEST_CASE("with open shapes, backends that do not exist are reported before anything runs") {
  const auto graph = [](OperatorDef def) {
    Graph g;
    g.AddInput("X", kFloat, {Sym("n")});
    g.AddNode(def.Input("X").Output("Y"));
    g.AddOutput("Y");
    return g;
  };
  const Graph preferred = graph(OperatorDef("Choosy").Backends("SECON"));
  const std::string why = "no backend 'SECON' has a kernel in this program (did you mean 'SECOND'?";
  CHECK(Contains(
      ToString(Compile(preferred)),
      StrCat("  Choosy (X) -> (Y): float32[n]\n    passed over:\n      backend SECON: ", why)));
  CHECK(Contains(ErrorOf([&] { Compile(preferred, {.backend_need = kRequired}); }).what(), why));
  const Error required =
      ErrorOf([&] { Compile(graph(OperatorDef("Choosy").Backends("SECON", kRequired))); });
  CHECK(required.code() == ErrorCode::kNotFound);
  CHECK(Contains(required.what(), why));
  CHECK(Contains(ErrorOf([&] { Compile(graph(OperatorDef("Chosy"))); }).what(),
                 "did you mean 'Choosy'?"));
}

TEST_CASE("a plan describes the shapes of the last run, even if its executor had them before") {
  for (const int max_shapes : {1, 8}) {  // 1: the plan and its executors drop what they do not use
    Graph graph;
    graph.AddInput("X", kFloat, {}).AddOutput("Y").AddNode(OperatorDef("Sized", {"X"}, {"Y"}));
    const Plan plan = Compile(graph, {.max_shapes = max_shapes});
    Executor exec(plan), other(plan);
    for (const int64_t extent : {2, 2000, 2, 2000, 2000, 2}) {
      Tensor x;
      x.Resize({extent}, kFloat);
      exec.Run({{"X", x}});
      CAPTURE(extent);
      CAPTURE(max_shapes);
      const bool big = extent == 2000;
      CHECK(plan.choice(0).kernel->backend == (big ? "BIG" : "reference"));
      CHECK(plan.type("Y").shape == SymbolicShape{extent});
      CHECK(plan.types().Get("Y").shape == SymbolicShape{extent});
      CHECK(Contains(ToString(plan), big ? ": BIG, " : ": reference, "));
    }
    // The other executor makes the plan drop the shapes that this one has kept.
    const Tensor three = Tensor::From<float>({3}, {1, 2, 3});
    const Tensor two = Tensor::From<float>({2}, {1, 2});
    other.Run({{"X", three}});
    CHECK(plan.type("Y").shape == SymbolicShape{3});
    Tensor x;
    x.Resize({2000}, kFloat);
    exec.Run({{"X", x}});
    other.Run({{"X", three}});
    exec.Run({{"X", two}});
    CHECK(plan.type("Y").shape == SymbolicShape{2});
    CHECK(exec.Run({{"X", two}}).Get("Y").ToVector<float>() == std::vector<float>{1, 2});
  }
}

TEST_CASE("a plan is described for given shapes, which leaves its own as they were") {
  Graph g;
  g.AddInput("X", kFloat, {Sym("n"), 3});
  g.AddNode(OperatorDef("Choosy").Backends("FIRST").Input("X").Output("Y"));
  g.AddOutput("Y");
  const Plan plan = Compile(g, {.threads = 1});
  const std::string text = ToString(plan, {{"X", {5, 3}}});
  CHECK(Contains(text, "0 Choosy (X) -> (Y): SECOND, "));
  CHECK(Contains(text, "float32[5, 3]"));
  CHECK(Contains(text, "backend FIRST: it is choosy today"));
  CHECK_FALSE(plan.has_shapes());
  CHECK(Contains(ErrorOf([&] { ToString(plan, {{"Z", {5, 3}}}); }).what(), "'Z'"));
  CHECK(Contains(ErrorOf([&] { ToString(plan, {{"X", {5, 4}}}); }).what(), "[5, 4]"));
  CHECK(Contains(
      ErrorOf([&] { ToString(plan, std::vector<std::pair<std::string, Shape>>()); }).what(),
      "'X' is float32[n, 3]"));
}

TEST_CASE("an allocation that fails is an error that names the largest values") {
  TestAllocator allocator;
  const auto text = [&](const std::vector<OperatorDef>& defs, int64_t limit) {
    allocator.set_limit(INT64_MAX);
    const Plan plan = Compile(Chain(defs), {.threads = 1});
    allocator.set_limit(limit);
    return std::string(ErrorOf([&] { Executor executor(plan); }).what());
  };
  const OperatorDef big = OperatorDef("Choosy").Name("big");
  const std::string value = text({big, OperatorDef("Scratch")}, 255);
  CHECK(Contains(value, "out of memory on test allocator"));
  CHECK(Contains(value,
                 "in the memory of cpu between nodes, most of it the 1000 bytes of scratch of node "
                 "Scratch (v1) -> (v2)"));
  CHECK(
      Contains(text({big, OperatorDef("Choosy")}, 255),
               "\n  in the memory of cpu between nodes, most of it 'v1', which is float32[64] and "
               "made by node Choosy 'big' (v0) -> (v1)"));
}

TEST_CASE("where memory cannot be planned, the error names a donated input that takes most of it") {
  PlanOptions options{.threads = 1, .memory = {.donated_inputs = {"X"}}};
  options.memory.search.name = "nowhere";
  Graph g;
  g.AddInput("X", kFloat, {64});
  g.AddNode(OperatorDef("Choosy").Input("X").Output("Y"));
  g.AddOutput("Y");
  const Error error = ErrorOf([&] { Compile(g, options); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.what(), "most of it 'X', which is float32[64]"));
}

TEST_CASE("a plan of fewer than no threads, or without room for any shapes, is refused") {
  Graph g;
  g.AddInput("X", kFloat, {1});
  g.AddOutput("X");
  CHECK(ErrorOf([&] { Compile(g, {.threads = -1}); }).message() ==
        "a plan needs threads >= 0 and max_shapes >= 1, found -1 and 8");
  CHECK(Contains(ErrorOf([&] { Compile(g, {.max_shapes = 0}); }).message(), "max_shapes >= 1"));
}

TEST_CASE("a node that reads a value of another device, from which nothing copies, is refused") {
  Graph g;
  g.AddInput("X", kFloat, {64}, Device{DeviceType::kCUDA, 0});
  g.AddNode(OperatorDef("Choosy").Input("X").Output("Y"));
  g.AddOutput("Y");
  const Error error = ErrorOf([&] { Compile(g, {.threads = 1}); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.what(),
                 "it reads 'X' on cpu, but that is on cuda, and no copy is registered"));
}

TEST_CASE("more bytes than can be counted are an error that names the node") {
  Graph g;
  g.AddInput("X", kFloat, {int64_t{1} << 60});
  g.AddNode(OperatorDef("Choosy").Name("first").Input("X").Output("A"));
  g.AddNode(OperatorDef("Choosy").Name("second").Input("A").Output("B"));
  g.AddNode(OperatorDef("Choosy").Name("third").Input("B").Output("C"));
  g.AddOutput("C");
  const Error together = ErrorOf([&] { Compile(g, {.threads = 1}); });
  CHECK(together.code() == ErrorCode::kOutOfRange);
  CHECK(Contains(together.what(), "the buffers' sizes add up to more than an int64 holds"));
  CHECK(Contains(together.what(),
                 "most of it 'A', which is float32[1152921504606846976] and made by node Choosy "
                 "'first' (X) -> (A)"));
  Graph alone;
  alone.AddInput("X", kFloat, {int64_t{1} << 62});
  alone.AddNode(OperatorDef("Choosy").Name("big").Input("X").Output("A"));
  alone.AddOutput("A");
  const Error one = ErrorOf([&] { Compile(alone); });
  CHECK(one.message() ==
        "a tensor float32[4611686018427387904] has more bytes than a 64-bit count can hold");
  CHECK(one.context().at(0) == "in the type of 'A', which node Choosy 'big' (X) -> (A) makes");
}

}  // namespace plan_test
