#include "opkit/graph/plan/converted_graph.hpp"

#include <doctest/doctest.h>

#include <random>
#include <stdexcept>

#include "graph/plan/steps_of.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace converted_graph_test {
namespace {

using namespace opkit;

OperatorDef In(const char* a, const char* y, const std::string& from, const std::string& to) {
  return OperatorDef("InLayouts", {from}, {to}).Arg("a", a).Arg("y", y);
}
Graph Begin(std::initializer_list<OperatorDef> nodes, const std::string& output = "Y") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {5});
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput(output);
  return graph;
}
using Steps = std::vector<std::string>;

constexpr const char* kDescribed = "Described";
const Tensor kX = Tensor::From<float>({5}, {1, 2, 3, 4, 5});

Floats Run(const Plan& plan) {
  Executor executor(plan);
  executor.Run({{"X", kX}});
  return executor.Run({{"X", kX}}).Get("Y").ToVector<float>();  // into the same memory
}
// Comparisons of descriptors while `f` runs.
template <class F>
int ComparisonsIn(F f) {
  const int before = test_layouts::CountedDescriptor::comparisons;
  f();
  return test_layouts::CountedDescriptor::comparisons - before;
}
// True if the producer and the readers of every value have the descriptor of its layout, for the
// shapes of the last run.
bool HaveOneDescriptor(const Plan& plan) {
  const auto found = plan.state()->GetLatest();
  const auto are_same = [&](std::span<const int> values, const std::vector<Layout>& layouts) {
    for (size_t i = 0; i < layouts.size(); ++i)
      if (layouts[i].descriptor != found->types()[values[i]].layout.descriptor) return false;
    return true;
  };
  for (int node = 0; node < found->view().num_nodes(); ++node) {
    const KernelConfig& config = found->choice(node).config;
    if (!are_same(found->view().inputs(node), config.input_layouts) ||
        !are_same(found->view().outputs(node), config.output_layouts))
      return false;
  }
  return true;
}

// Works in the layout with descriptors. Proposes two configurations, and refuses the first when it
// is made.
class SecondChoiceOp final : public Operator<CPUContext> {
 public:
  SecondChoiceOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {
    if (config && config->scratch_bytes == 0) throw UnsupportedOperatorFeature("needs scratch");
  }
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(2);
    for (KernelConfig& config : configs) {
      config.input_layouts = {test_layouts::Named(kDescribed)};
      config.output_layouts = {test_layouts::Named(kDescribed)};
    }
    configs[1].scratch_bytes = 64;
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    std::memcpy(y->raw_mutable_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
    return true;
  }
};
OPERATOR_SCHEMA(SecondChoice).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(SecondChoice, layouts, SecondChoiceOp);

}  // namespace

TEST_CASE("Input -> Op1 (A) -> Op2 (B) -> Op3 (B) -> Output gets a converter at each border") {
  const Graph graph =
      Begin({In("A", "A", "X", "P"), In("B", "B", "P", "Q"), In("B", "B", "Q", "Y")});
  const Plan through_standard = Compile(graph, {.threads = 1});
  CHECK(StepsOf(through_standard) == Steps{"standard to A of X", "P", "A to standard of P",
                                           "standard to B of P", "Q", "Y@B", "B to standard of Y"});
  CHECK(Run(through_standard) == Floats{8, 16, 24, 32, 40});
  CHECK(through_standard.type("P").layout == test_layouts::Named("A"));
  CHECK(through_standard.type("Y").layout.is_standard());
  CHECK(Contains(ToString(through_standard), "ConvertLayout 'standard to A of X'"));

  RegisterLayoutConverter(test_layouts::LayoutA(), test_layouts::LayoutB(),
                          &test_layouts::Move<test_layouts::FromTheEnd, test_layouts::WithGaps>);
  const Plan directly = Compile(graph, {.threads = 1});
  CHECK(StepsOf(directly) ==
        Steps{"standard to A of X", "P", "A to B of P", "Q", "Y@B", "B to standard of Y"});
  CHECK(Run(directly) == Floats{8, 16, 24, 32, 40});
}

TEST_CASE("a constant that is given in another layout is one of the standard layout") {
  Graph graph = Begin({In("standard", "standard", "X", "P")}, "P");
  graph.AddConstant("W",
                    ConvertLayout(Tensor::From<float>({3}, {1, 2, 3}), test_layouts::Named("A")));
  graph.AddNode(In("standard", "standard", "W", "Q"));
  graph.AddOutput("Q");
  const Tensor* const w = graph.FindConstant("W");
  REQUIRE(w != nullptr);
  CHECK(w->ToVector<float>() == Floats{1, 2, 3});
  const PassList none;
  Executor executor(Compile(graph, {.passes = &none}));
  CHECK(executor.Run({{"X", Tensor::From<float>({5}, {1, 2, 3, 4, 5})}}).Get("Q").numel() == 3);
}

TEST_CASE("where all layouts are equal there is no converter") {
  const Plan plan =
      Compile(Begin({In("standard", "standard", "X", "P"), In("standard", "standard", "P", "Y")}));
  CHECK(StepsOf(plan) == Steps{"P", "Y"});
  CHECK(&plan.state()->GetLatest()->view() == &plan.view());
}

TEST_CASE("a value that is read in two layouts is converted once to each") {
  Graph graph = Begin({In("A", "standard", "X", "P"), In("A", "standard", "X", "Q"),
                       In("B", "standard", "X", "R"), In("standard", "standard", "X", "S")},
                      "P");
  for (const char* output : {"Q", "R", "S"}) graph.AddOutput(output);
  const Plan plan = Compile(graph, {.threads = 1, .schedule = {.deterministic = true}});
  const Steps steps = StepsOf(plan);
  CHECK(std::ranges::count(steps, "standard to A of X") == 1);
  CHECK(std::ranges::count(steps, "standard to B of X") == 1);
  CHECK(steps.size() == 6);
  Executor executor(plan);
  const NamedTensors out = executor.Run({{"X", kX}});
  for (const char* output : {"P", "Q", "R", "S"})
    CHECK(out.Get(output).ToVector<float>() == Floats{2, 4, 6, 8, 10});
}

TEST_CASE("a constant is converted when the plan is built, and one that is returned stays") {
  Graph graph = Begin({OperatorDef("InLayouts", {"X", "W"}, {"Y"}).Arg("b", "A")});
  graph.AddConstant("W", Tensor::From<float>({5}, {10, 20, 30, 40, 50}));
  graph.AddOutput("W");
  const Plan plan = Compile(graph);
  CHECK(StepsOf(plan) == Steps{"Y"});
  CHECK(Run(plan) == Floats{12, 24, 36, 48, 60});
  Executor executor(plan);
  CHECK(executor.Run({{"X", kX}}).Get("W").ToVector<float>() == Floats{10, 20, 30, 40, 50});
}

TEST_CASE("a conversion that fails names the constant") {
  static const LayoutId fails = RegisterLayout(
      {.name = "Fails",
       .to_standard = [](const Tensor&, Tensor&) {},
       .from_standard = [](const Tensor&, Tensor&) { throw std::runtime_error("it cannot"); }});
  Graph graph = Begin({OperatorDef("InLayouts", {"X", "W"}, {"Y"}).Arg("b", LayoutName(fails))});
  graph.AddConstant("W", kX);
  for (const char* text : {"it cannot", "in the conversion from standard to Fails of float32[5]",
                           "in the conversion of constant 'W'"})
    CheckFails([&] { Compile(graph); }, text);
}

TEST_CASE("the shapes and executors of a plan share its converted constants") {
  static int conversions = 0;
  RegisterLayout({.name = "Counted",
                  .to_standard = &test_layouts::Move<test_layouts::InOrder, test_layouts::InOrder>,
                  .from_standard = [](const Tensor& from, Tensor& to) {
                    ++conversions;
                    test_layouts::Move<test_layouts::InOrder, test_layouts::InOrder>(from, to);
                  }});
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  graph.AddConstant("W", Tensor::From<float>({5}, {10, 20, 30, 40, 50}));
  graph.AddNode(OperatorDef("InLayouts", {"X", "W"}, {"Y"}).Arg("b", "Counted"));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph);
  Executor first(plan), second(plan);
  for (Executor* executor : {&first, &second})
    for (const int64_t n : {2, 4, 2}) {
      const Tensor x = Tensor::From<float>({n}, Floats(static_cast<size_t>(n), 1.f));
      CHECK(executor->Run({{"X", x}}).Get("Y").ToVector<float>()[1] == 22);
    }
  CHECK(conversions == 1);
}

TEST_CASE("neighbours that agree on a layout have one descriptor of it, and a run compares none") {
  const Plan plan = Compile(Begin({In(kDescribed, kDescribed, "X", "P"),
                                   OperatorDef("InLayouts", {"P", "X"}, {"Q"})
                                       .Arg("a", kDescribed)
                                       .Arg("b", kDescribed)
                                       .Arg("y", kDescribed),
                                   In(kDescribed, kDescribed, "Q", "Y")}),
                            {.threads = 1});
  CHECK(StepsOf(plan) ==
        Steps{"standard to Described of X", "P", "Q", "Y@Described", "Described to standard of Y"});
  CHECK(HaveOneDescriptor(plan));
  CHECK(ComparisonsIn([&] { CHECK(Run(plan) == Floats{10, 20, 30, 40, 50}); }) == 0);
}

TEST_CASE("a converted constant has the descriptor that its readers have, in every set of shapes") {
  const auto reads = [](const char* from, const char* to) {
    return OperatorDef("InLayouts", {from, "W"}, {to}).Arg("b", kDescribed);
  };
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  graph.AddConstant("W", Tensor::From<float>({5}, {10, 10, 10, 10, 10}));
  graph.AddNode(reads("X", "P"));
  graph.AddNode(reads("P", "Y"));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph, {.threads = 1});
  Executor executor(plan);
  for (const int64_t n : {2, 4}) {
    const Tensor x = Tensor::From<float>({n}, Floats(static_cast<size_t>(n), 1.f));
    executor.Run({{"X", x}});
    const auto found = plan.state()->GetLatest();
    const Tensor& w = *found->view().constant(found->view().inputs(0)[1]);
    CHECK(w.layout().descriptor == found->choice(0).config.input_layout(1).descriptor);
    CHECK(HaveOneDescriptor(plan));
    CHECK(ComparisonsIn([&] {
            CHECK(executor.Run({{"X", x}}).Get("Y").ToVector<float>()[0] == 34);
          }) == 0);
  }
}

TEST_CASE("a kernel that is chosen after a refusal has its neighbours' descriptors") {
  const Plan plan = Compile(
      Begin({In("standard", kDescribed, "X", "P"), OperatorDef("SecondChoice", {"P"}, {"Q"}),
             In(kDescribed, "standard", "Q", "Y")}),
      {.threads = 1});
  CHECK(StepsOf(plan) == Steps{"P", "Q", "Y"});
  CHECK(plan.choice(1).config_number == 1);
  CHECK(HaveOneDescriptor(plan));
  CHECK(ComparisonsIn([&] { CHECK(Run(plan) == Floats{4, 8, 12, 16, 20}); }) == 0);
}

TEST_CASE("a light operator takes the layout that it is given, so that a chain converts twice") {
  const auto follows = [](const std::string& from, const std::string& to) {
    return OperatorDef("InLayouts", {from}, {to}).Arg("follows", true);
  };
  const Plan plan =
      Compile(Begin({In("A", "A", "X", "P"), follows("P", "Q"), In("A", "A", "Q", "R"),
                     follows("R", "S"), In("A", "A", "S", "Y")}));
  CHECK(StepsOf(plan) ==
        Steps{"standard to A of X", "P", "Q", "R", "S", "Y@A", "A to standard of Y"});
  CHECK(Run(plan) == Floats{32, 64, 96, 128, 160});
}

TEST_CASE("an output keeps its name and the standard layout for callers, bound or not") {
  const Plan plan = Compile(Begin({In("A", "B", "X", "Y"), In("B", "standard", "Y", "Z")}));
  Executor executor(plan);
  Tensor bound = Tensor::From<float>({5}, {0, 0, 0, 0, 0});
  executor.Bind("Y", bound);
  executor.Run({{"X", kX}});
  CHECK(bound.ToVector<float>() == Floats{2, 4, 6, 8, 10});
  CHECK(bound.layout().is_standard());
}

TEST_CASE(
    "memory is planned for layouts: the bytes that they take, in place where the kernel may") {
  const auto arena = [](const char* layout, bool inplace) {
    const auto node = [&](const char* from, const char* to) {
      return In(layout, layout, from, to).Arg("inplace", inplace);
    };
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {1000});
    graph.AddNode(node("X", "P"));
    graph.AddNode(node("P", "Q"));
    graph.AddNode(node("Q", "Y"));
    graph.AddOutput("Y");
    return Compile(graph, {.threads = 1, .memory = {.verify = true}}).memory();
  };
  CHECK(arena("standard", false).arena_bytes == 2 * 4032);
  CHECK(arena("standard", true).arena_bytes == 4032);
  // X, P, Q and Y in the layout: two at a time, of twice the bytes.
  CHECK(arena("B", false).arena_bytes == 2 * 8000);
  CHECK(arena("B", true).arena_bytes == 8000);
  CHECK(arena("B", true).inplace_values == 3);
}

TEST_CASE("a picture of the plan has the backends and the converters") {
  const std::string dot = ToDot(Compile(Begin({In("A", "standard", "X", "Y")})));
  CHECK(Contains(dot, "\\ny=\\\"standard\\\"\\nlayouts\", shape=box, fillcolor=\"#cfdff3\"]"));
  CHECK(Contains(
      dot, "[label=\"ConvertLayout 'standard to A of X'\", shape=box, fillcolor=\"#f8d48a\"]"));
  CHECK(Contains(dot, "label=\"X@A\\nfloat32[5] in A\""));
}

TEST_CASE("a capacity is kept, or refused with the values that are live together") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {1000});
  for (const auto& [from, to] : {std::pair("X", "P"), {"P", "Q"}, {"Q", "Y"}})
    graph.AddNode(OperatorDef("InLayouts", {from}, {to}));
  graph.AddOutput("Y");
  PlanOptions options{.threads = 1};
  options.memory.capacity_bytes = 8064;
  CHECK(Compile(graph, options).memory().arena_bytes == 8064);
  options.memory.capacity_bytes = 8063;
  const Error error = ErrorOf([&] { Compile(graph, options); });
  CHECK(error.code() == ErrorCode::kOutOfMemory);
  CHECK(
      Contains(error.message(),
               "on cpu takes 8064 bytes (no plan less than 8064), more than the capacity of 8063; "
               "live together:\n  4000 bytes: 'P' float32[1000]\n  4000 bytes: 'Q' float32[1000]"));
  options.memory.capacity_bytes = -1;
  CheckFails([&] { Compile(graph, options); }, "capacity_bytes is -1");
}

TEST_CASE("layouts of values that are rewritten, or whose shape a run decides, are passed over") {
  Graph rewritten = Begin({In("A", "standard", "X", "Y"), In("standard", "standard", "X", "X")});
  const Plan plan = Compile(rewritten);
  CHECK(Contains(plan.choice(0).passed_over,
                 "it wants A for input 0, but 'X' is rewritten in place, in the standard layout"));
  CHECK(plan.choice(0).kernel->backend == "reference");
}

TEST_CASE("Invoke converts a kernel's inputs and outputs, and the caller's tensors") {
  const Arguments in_b{{"a", "B"}, {"y", "A"}};
  CHECK(Invoke("InLayouts", {kX}, in_b)[0].ToVector<float>() == Floats{2, 4, 6, 8, 10});
  const Tensor given = ConvertLayout(kX, test_layouts::Named("A"));
  CHECK(Invoke("InLayouts", {given}, in_b)[0].ToVector<float>() == Floats{2, 4, 6, 8, 10});
  CHECK(Invoke("InLayouts", {given}, {}, {.backends = "reference"})[0].ToVector<float>() ==
        Floats{2, 4, 6, 8, 10});
  // Into the caller's memory.
  ResolvedOperator op("InLayouts", 1, in_b);
  std::vector<Tensor> outputs{Tensor::From<float>({5}, {0, 0, 0, 0, 0})};
  const Tensor same = outputs[0];
  op.Run(std::vector<Tensor>{kX}, outputs);
  CHECK(same.ToVector<float>() == Floats{2, 4, 6, 8, 10});
  CHECK(outputs[0].raw_data() == same.raw_data());
}

TEST_CASE("Invoke gives an operator the descriptors of its kernel, so that it compares none") {
  ResolvedOperator op("InLayouts", 1, {{"a", kDescribed}});
  std::vector<Tensor> outputs(1);
  CHECK(ComparisonsIn([&] { op.Run(std::vector<Tensor>{kX}, outputs); }) == 0);
  const std::vector<Tensor> given{ConvertLayout(kX, test_layouts::Named(kDescribed))};
  // One, when the descriptor is exchanged.
  CHECK(ComparisonsIn([&] { op.Run(given, outputs); }) == 1);
  CHECK(outputs[0].ToVector<float>() == Floats{2, 4, 6, 8, 10});
}

// The plain kernel, which takes layout A alone: what lies first there is the last element.
class LastInAOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = {test_layouts::Named("A")};
    return {config};
  }
  bool RunOnDevice() override {
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] =
        static_cast<const float*>(Input(0).raw_data())[0];
    return true;
  }
};
OPERATOR_SCHEMA(LastInA).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, {1});
});
REGISTER_CPU_OPERATOR(LastInA, LastInAOp);

TEST_CASE("a plain kernel of a layout gets it by Invoke, and is not made where nothing converts") {
  CHECK(Invoke("LastInA", {kX})[0].ToVector<float>() == Floats{5});
  ResolvedOperator resolved("LastInA", 1);
  CHECK(resolved({kX})[0].ToVector<float>() == Floats{5});
  CHECK(InvokeAsync("LastInA", {kX}).Get()[0].ToVector<float>() == Floats{5});
  CHECK(Run(Compile(Begin({OperatorDef("LastInA", {"X"}, {"Y"})}))) == Floats{5});
  Workspace ws;
  *ws.CreateTensor("X") = kX;
  CheckFails([&] { CreateOperator(OperatorDef("LastInA", {"X"}, {"Y"}), &ws); },
             "backend reference: it takes another layout than the standard one, and nothing "
             "converts here");
  // Another kernel takes the node where there is one.
  const auto op = CreateOperator(OperatorDef(In("A", "A", "X", "Y")).Backends("layouts"), &ws);
  CHECK(op->Run());
  CHECK(ws.GetTensor("Y")->ToVector<float>() == Floats{2, 4, 6, 8, 10});
}

// Makes its output in the layout that `made` names, and promises the one of `promised`.
class OtherThanPromisedOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    config.output_layouts = {
        test_layouts::Named(query.def.args().Get<std::string>("promised", ""))};
    return {config};
  }
  bool RunOnDevice() override {
    SetOutputTensor(
        0,
        ConvertLayout(Input(0), test_layouts::Named(GetSingleArgument<std::string>("made", ""))));
    return true;
  }
};
OPERATOR_SCHEMA(OtherThanPromised)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<std::string>("promised", "")
    .Arg<std::string>("made", "");
REGISTER_CPU_OPERATOR(OtherThanPromised, OtherThanPromisedOp);

TEST_CASE("an output in another layout than its kernel promised fails the run") {
  for (const auto& [promised, made] :
       {std::pair("standard", "A"), {"A", "standard"}, {"A", "B"}, {"B", "B"}}) {
    CAPTURE(promised);
    CAPTURE(made);
    const Arguments args{{"promised", promised}, {"made", made}};
    const OperatorDef node("OtherThanPromised", {"X"}, {"P"}, args);
    const std::string text = StrCat("where the configuration of its kernel says layout ", promised);
    const auto invoke = [&] { return Invoke("OtherThanPromised", {kX}, args); };
    const auto run = [&](const Graph& graph) {
      for (const int threads : {1, 2}) {
        Executor executor(Compile(graph, {.threads = threads}));
        static_cast<void>(executor.Run({{"X", kX}}));
      }
    };
    if (promised == std::string_view(made)) {
      CHECK(invoke()[0].ToVector<float>() == kX.ToVector<float>());
      run(Begin({node}, "P"));
      continue;
    }
    CheckFails(invoke, text);
    CheckFails([&] { run(Begin({node}, "P")); }, text);
    CheckFails([&] { run(Begin({node, In("A", "standard", "P", "Y")})); }, text);
  }
}

TEST_CASE("an operator with an input in a layout that its kernel does not take is an error") {
  Workspace ws;
  *ws.CreateTensor("X") = ConvertLayout(kX, test_layouts::Named("A"));
  const auto op = CreateOperator(OperatorDef("InLayouts", {"X"}, {"Y"}), &ws);
  CheckFails([&] { op->Run(); }, "is float32[5] on cpu in A, but its kernel takes standard");
}

TEST_CASE("a node of the program itself states the layout of its output") {
  Graph graph = Begin({OperatorDef("ConvertLayout", {"X"}, {"P"}).Arg("layout", "A"),
                       In("A", "standard", "P", "Y")});
  const Plan plan = Compile(graph);
  CHECK(StepsOf(plan) == Steps{"P", "Y"});
  CHECK(plan.type("P").layout == test_layouts::Named("A"));
  CHECK(Run(plan) == Floats{2, 4, 6, 8, 10});
  CheckFails(
      [&] { Compile(Begin({OperatorDef("ConvertLayout", {"X"}, {"Y"}).Arg("layout", "NCHX")})); },
      "there is no layout 'NCHX'");
}

TEST_CASE("converters are spans of their own in a profile") {
  Executor executor(Compile(Begin({In("A", "standard", "X", "Y")}), {.threads = 1}));
  Profiler::Start();
  executor.Run({{"X", kX}});
  Profiler::Stop();
  int converters = 0;
  for (const ProfileSpan& span : Profiler::Read().spans)
    converters += span.kind == Invocation::Kind::kConverter &&
                  InternedName(span.node) == "standard to A of X";
  CHECK(converters == 1);
}

TEST_CASE("random graphs with random layouts equal those in the standard layout, bit by bit") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const char* const layouts[] = {"standard", "A", "B", kDescribed};
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {7});
    std::vector<Floats> constants;
    std::vector<std::string> values{"X"};
    for (int i = 0; i < 2; ++i) {
      Floats numbers(7);
      for (float& number : numbers) number = static_cast<float>(pick(100));
      graph.AddConstant(StrCat("W", i), Tensor::From<float>({7}, numbers));
      values.push_back(StrCat("W", i));
    }
    for (int i = 0; i < 12; ++i) {
      OperatorDef node("InLayouts");
      node.Input(values[static_cast<size_t>(pick(static_cast<int>(values.size())))]);
      if (pick(2)) node.Input(values[static_cast<size_t>(pick(static_cast<int>(values.size())))]);
      node.Output(StrCat("V", i)).Arg("inplace", pick(2) == 1);
      if (pick(3) == 0) node.Arg("follows", true);
      for (const char* value : {"a", "b", "y"}) node.Arg(value, layouts[pick(4)]);
      graph.AddNode(node);
      values.push_back(StrCat("V", i));
      if (pick(4) == 0) graph.AddOutput(StrCat("V", i));
    }
    if (!graph.IsOutput("V11")) graph.AddOutput("V11");
    Graph plain = graph;
    for (int i = 0; i < plain.num_nodes(); ++i)
      plain.ReplaceNode(i, OperatorDef(plain.node(i)).Backends("reference", kRequired));
    const Tensor x = Tensor::From<float>({7}, {3, 1, 4, 1, 5, 9, 2});
    for (const int threads : {1, 2}) {
      Executor with(Compile(
          graph,
          {.threads = threads, .memory = {.release_constants = threads == 2, .verify = true}}));
      Executor without(Compile(plain, {.threads = 1}));
      for (int run = 0; run < 2; ++run) {
        const NamedTensors found = with.Run({{"X", x}}), expected = without.Run({{"X", x}});
        for (const std::string& output : graph.outputs())
          CHECK(found.Get(output).ToVector<float>() == expected.Get(output).ToVector<float>());
      }
    }
  }
}

}  // namespace converted_graph_test
