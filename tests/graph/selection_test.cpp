#include "opkit/graph/selection.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "opkit/graph/executor.hpp"
#include "support/awkward.hpp"
#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace selection_test {
namespace {

using namespace opkit;

Graph TwoNodes() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("InLayouts", {"X"}, {"P"}).Arg("y", "A"));
  graph.AddNode(OperatorDef("InLayouts", {"P"}, {"Y"}).Arg("a", "A"));
  graph.AddOutput("Y");
  return graph;
}
Plan Forced(const std::vector<Selection::Node>& nodes) {
  PlanOptions options;
  options.selection.forced.nodes = nodes;
  return Compile(TwoNodes(), options);
}

// Two kernels that estimate their time, each with two configurations.
template <int kCost, bool kRefuses = false>
class CostOp final : public Operator<CPUContext> {
 public:
  CostOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {
    if (kRefuses) throw UnsupportedOperatorFeature("it refuses when it is made");
  }
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs(2);
    configs[0].cost_ns = kCost;
    configs[0].input_layouts = configs[0].output_layouts = {test_layouts::Named("A")};
    configs[1].cost_ns = kCost + query.def.args().Get<int>("slower", 0);
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    ConvertLayoutTo(x, *y);
    return true;
  }
};
OPERATOR_SCHEMA(Costs).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().Arg<int>("slower", "", 0);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Costs, heavy, CostOp<5000>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Costs, light, CostOp<3000>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Costs, picky, CostOp<100, true>);
OPKIT_REGISTER_BACKEND_RANK("heavy", 60);
OPKIT_REGISTER_BACKEND_RANK("light", 50);
OPKIT_REGISTER_BACKEND_RANK("picky", 55);

// A fast kernel with scratch, and a slow one that runs in place.
template <bool kFast>
class TradeOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.cost_ns = kFast ? 100 : 1000;
    if (kFast) config.scratch_bytes = 1024;
    if (!kFast) config.inplace = {{0, 0}};
    return {config};
  }
  bool RunOnDevice() override { return Output(0, Input(0).shape(), Input(0).dtype()) != nullptr; }
};
OPERATOR_SCHEMA(Trades).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(Trades, heavy, TradeOp<true>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Trades, light, TradeOp<false>);

// Writes the number of its variant.
class WaysOp final : public Operator<CPUContext> {
 public:
  WaysOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config), variant_(config ? config->variant : "") {}
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(3);
    configs[1].variant = "first";
    configs[2].variant = "second";
    return configs;
  }
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    y->mutable_data<float>()[0] = variant_ == "first" ? 1 : variant_ == "second" ? 2 : 0;
    return true;
  }

 private:
  const std::string variant_;
};
OPERATOR_SCHEMA(Ways).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(Ways, ways, WaysOp);

// A kernel with a variant that only a selection chooses. The output has the length of its name.
class VariedOp final : public Operator<CPUContext> {
 public:
  VariedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config),
        length_(config ? static_cast<float>(config->variant.size()) : -1) {}
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(2);
    configs[0].cost_ns = 1000;
    configs[1].variant = "threads=1";
    return configs;
  }
  bool RunOnDevice() override {
    Tensor& y = *Output(0, Input(0).shape(), DType::kFloat32);
    std::fill_n(y.mutable_data<float>(), y.numel(), length_);
    return true;
  }

 private:
  const float length_;
};
OPERATOR_SCHEMA(Varies).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Varies, VariedOp);

Plan CompileCosts(int slower) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("Costs", {"X"}, {"Y"}).Arg("slower", slower));
  graph.AddOutput("Y");
  return Compile(graph);
}

}  // namespace

TEST_CASE("a plan has a selection, which reads back from its text") {
  const Selection selection = Compile(TwoNodes()).selection();
  REQUIRE(selection.nodes.size() == 2);
  CHECK(selection.nodes[0].node == "P");
  CHECK(selection.nodes[0].backend == "layouts");
  CHECK(selection.nodes[0].config == 0);
  CHECK(selection.nodes[0].op == "InLayouts");
  CHECK(ToString(selection) ==
        "P\tInLayouts\tlayouts\t0\tcpu\tstandard -> A\n"
        "Y\tInLayouts\tlayouts\t0\tcpu\tA -> standard\n");
  CHECK(ParseSelection("P\tInLayouts\tlayouts\t0\n").nodes[0].device.empty());
  CHECK(ToString(ParseSelection(ToString(selection))) == ToString(selection));
  const Selection odd{{{"a\tb\\\nc", "one", -1, "O p"}}};
  CHECK(ParseSelection(ToString(odd)).nodes[0].node == "a\tb\\\nc");
  const Selection chosen{{{"P", "one", 2, "", "", "A -> A", "way\t"}}};
  CHECK(ToString(chosen) == "P\t\tone\t2\t\tA -> A\tway\\t\n");
  CHECK(ParseSelection(ToString(chosen)).nodes[0].layouts == "A -> A");
  CHECK(ParseSelection(ToString(chosen)).nodes[0].variant == "way\t");
  CHECK(ParseSelection("").nodes.empty());
  for (const auto& [name, utf8] : AwkwardNames()) {
    CAPTURE(name);
    if (name.empty()) continue;
    const Selection of_name{{{name, name, -1, name, name}}};
    CHECK(ParseSelection(ToString(of_name)).nodes[0].node == name);
    CHECK(ToString(ParseSelection(ToString(of_name))) == ToString(of_name));
  }
}

TEST_CASE("a text that is no selection is refused with its line") {
  for (const char* text :
       {"P\tInLayouts\tlayouts\t0\nnonsense", "P\tA\tb\tx", "P\tA\tb\t-2", "P\tA\tb\t1 ",
        "\tA\tb\t1", "P\tA\t\t1", "P\tA\tb", "P\tA\tb\t0\tcpu\t1\t2\t3", "\n"})
    CheckFails([&] { ParseSelection(text); }, "of a selection is '");
  CheckFails([] { ParseSelection("P\tA\tb\t0\nQ"); }, "line 2 of a selection is 'Q'");
}

TEST_CASE("forced kernels run, and a run is the same in another plan") {
  const Plan plan = Forced({{"P", "reference"}});
  CHECK(plan.choice(0).kernel->backend == "reference");
  CHECK(plan.choice(1).kernel->backend == "layouts");
  Executor executor(plan);
  CHECK(executor.Run({{"X", Tensor::From<float>({4}, {1, 2, 3, 4})}}).Get("Y").ToVector<float>() ==
        Floats{4, 8, 12, 16});
  const Plan again = Forced(plan.selection().nodes);
  CHECK(ToString(again.selection()) == ToString(plan.selection()));
}

TEST_CASE("nodes that write the same value are distinguished") {
  Graph graph;
  graph.AddInput("T", DType::kFloat32, {2});
  graph.AddInput("X", DType::kFloat32, {2});
  for (int i = 0; i < 3; ++i) graph.AddNode(OperatorDef("Accumulate", {"T", "X"}, {"T"}));
  graph.AddNode(OperatorDef("Relu", {"T"}, {"Y"}));
  graph.AddOutput("Y");
  const Selection selection = Compile(graph).selection();
  REQUIRE(selection.nodes.size() == 4);
  CHECK(selection.nodes[0].node == "T");
  CHECK(selection.nodes[1].node == "T#2");
  CHECK(selection.nodes[2].node == "T#3");
  PlanOptions options;
  options.selection.forced = selection;
  CHECK(ToString(Compile(graph, options).selection()) == ToString(selection));
}

TEST_CASE("a selection that cannot be forced is an Error with the reason") {
  CheckFails(
      [] {
        Forced({{"Q", "reference"}});
      },
      "a kernel for node 'Q', which the graph does not have");
  CheckFails(
      [] {
        Forced({{"P", "reference", 0, "Add"}});
      },
      "says that node 'P' is Add, but it is");
  CheckFails([] { Forced({{"P", "refrence"}}); }, "did you mean 'reference'");
  CheckFails(
      [] {
        Forced({{"P", "layouts", 3}});
      },
      "the selection asks for configuration 3, not 0");
  CheckFails(
      [] {
        Forced({{"P", "reference"}, {"P", "layouts"}});
      },
      "the selection has two kernels for node 'P': reference and layouts");
  CheckFails(
      [] {
        Forced({{"P", "reference", 0, "", "cuda"}});
      },
      "the selection has node 'P' run on cuda, but it may not");
  for (const char* device : {"cpu", "cpu:0"})
    CHECK_NOTHROW(Forced({{"P", "reference", 0, "", device}}));
}

TEST_CASE("forced layouts are had although the input comes in another layout") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("InLayouts", {"X"}, {"P"}).Arg("y", "A"));
  graph.AddNode(OperatorDef("InLayouts", {"P"}, {"Y"}).Arg("follows", true));
  graph.AddOutput("Y");
  const auto compile = [&](const Selection::Node& y) {
    PlanOptions options;
    options.selection.forced.nodes = {{"P", "reference"}, y};
    return Compile(graph, options);
  };
  // The input comes in the standard layout, for which the kernel proposes the standard layout.
  const Plan plan = compile({"Y", "layouts", -1, "", "", "A -> A"});
  CHECK(plan.Explain().converters == 2);
  CHECK(ToString(plan.choice(1).config.output_layouts[0]) == "A");
  CHECK(plan.selection().nodes[1].layouts == "A -> A");
  CHECK(Executor(plan)
            .Run({{"X", Tensor::From<float>({4}, {1, 2, 3, 4})}})
            .Get("Y")
            .ToVector<float>() == Floats{4, 8, 12, 16});
  CHECK(compile({"Y", "layouts", -1, "", "", "standard"}).Explain().converters == 0);
  CHECK(compile({"Y", "layouts"}).Explain().converters == 0);
  // No node before makes this layout; its name is enough to convert to it.
  CHECK(compile({"Y", "layouts", -1, "", "", "B -> B"}).Explain().converters == 2);
  CheckFails(
      [&] {
        compile({"Y", "layouts", -1, "", "", "C -> C"});
      },
      "the selection asks for C -> C, not standard");
}

TEST_CASE("a variant is chosen by its name, and reaches the kernel") {
  const auto run = [](const Selection::Node& node) {
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {1});
    graph.AddNode(OperatorDef("Ways", {"X"}, {"Y"}));
    graph.AddOutput("Y");
    PlanOptions options;
    if (!node.backend.empty()) options.selection.forced.nodes = {node};
    const Plan plan = Compile(graph, options);
    const Floats y =
        Executor(plan).Run({{"X", Tensor::From<float>({1}, {0})}}).Get("Y").ToVector<float>();
    return std::pair(plan.selection().nodes[0].variant, y[0]);
  };
  CHECK(run({}) == std::pair(std::string(), 0.0F));
  CHECK(run({"Y", "ways", -1, "", "", "", "second"}) == std::pair(std::string("second"), 2.0F));
  CHECK(run({"Y", "ways", -1, "", "", "standard", "first"}) ==
        std::pair(std::string("first"), 1.0F));
  CHECK(run({"Y", "ways", -1, "", "", "standard"}) == std::pair(std::string(), 0.0F));
  CheckFails([&] { run({"Y", "ways", -1, "", "", "", "third"}); }, "the selection asks for ");
}

TEST_CASE("without `required` a choice that cannot be made is passed over") {
  const auto compile = [](const Selection::Node& node) {
    PlanOptions options;
    options.selection.forced.nodes = {node};
    options.selection.forced.nodes[0].required = false;
    return Compile(TwoNodes(), options).choice(0).kernel->backend;
  };
  CHECK(compile({"P", "reference"}) == "reference");
  CHECK(compile({"Q", "reference"}) == "layouts");
  CHECK(compile({"P", "refrence"}) == "layouts");
  CHECK(compile({"P", "reference", 3}) == "layouts");
  CHECK(compile({"P", "reference", -1, "Add"}) == "layouts");
  CHECK(compile({"P", "reference", -1, "", "cuda"}) == "layouts");
  CHECK(compile({"P", "reference", -1, "", "", "B -> B"}) == "layouts");
}

TEST_CASE("of kernels that estimate their time the shortest is taken, conversions included") {
  // In A, 100 ns and some 400 ns of conversions, but refused by its constructor; then 3000.
  const Plan cheap_conversion = CompileCosts(5000);
  CHECK(cheap_conversion.choice(0).kernel->backend == "light");
  CHECK(cheap_conversion.choice(0).config_number == 0);
  const Plan none_needed = CompileCosts(0);
  CHECK(none_needed.choice(0).kernel->backend == "light");
  CHECK(none_needed.choice(0).config_number == 1);
  CHECK(Contains(none_needed.choice(0).passed_over, "backend heavy: estimated at 5.000 us"));
  CHECK(Contains(none_needed.choice(0).passed_over, "backend picky: it refuses when it is made"));
}

TEST_CASE("for less memory, kernels with fewer bytes run, though they take longer") {
  const auto chosen = [](Selection::Objective objective, int64_t elements) {
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {elements});
    graph.AddNode(OperatorDef("Trades", {"X"}, {"Y"}));
    graph.AddOutput("Y");
    return Compile(graph, {.selection = {.objective = objective}});
  };
  CHECK(chosen(Selection::Objective::kTime, 1024).choice(0).kernel->backend == "heavy");
  const Plan lean = chosen(Selection::Objective::kMemory, 1024);
  CHECK(lean.choice(0).kernel->backend == "light");
  // Scratch of 1 KiB and an output of 4, against an output in place.
  CHECK(Contains(lean.choice(0).passed_over, "backend heavy: needs 5120 bytes, against 0"));
}

TEST_CASE("an explanation has every candidate with its outcome, and the conversions") {
  const Explanation explanation = CompileCosts(5000).Explain();
  REQUIRE(explanation.nodes.size() == 3);
  CHECK(explanation.converters == 2);
  CHECK(explanation.converted_bytes == 2 * 2 * 16);
  const Explanation::Node& before = explanation.nodes[0];
  CHECK(before.is_converter());
  CHECK(before.from == "standard");
  CHECK(before.to == "A");
  CHECK(before.bytes == 32);
  CHECK(before.ns > 0);
  const Explanation::Node& node = explanation.nodes[1];
  REQUIRE(node.candidates.size() == 6);
  CHECK(node.candidates[static_cast<size_t>(node.chosen)].backend == "light");
  CHECK(node.candidates[static_cast<size_t>(node.chosen)].layouts == "A -> A");
  CHECK(node.candidates[static_cast<size_t>(node.runner_up)].backend == "heavy");
  CHECK(node.candidates[0].cost_ns == 5000);
  CHECK(node.candidates[0].conversion_ns > 0);
  CHECK(node.candidates[0].why_not.starts_with("estimated at 5.000 us and "));
  const std::string text = ToString(explanation);
  CHECK(Contains(text, "1 Costs (X@A) -> (Y@A): light, A -> A, about 3.000 us"));
  CHECK(Contains(text, "    then heavy, A -> A, about 5.000 us"));
  CHECK(Contains(text, "    not picky, A -> A, about 0.100 us: it refuses when it is made"));
  CHECK(Contains(text, "2 conversions between layouts, 64 bytes"));
  const std::string json = ToJson(explanation);
  CHECK(json.starts_with("{\"nodes\": [{\"name\": \""));
  CHECK(Contains(json, "\"from\": \"standard\", \"to\": \"A\", \"bytes\": 32"));
  CHECK(json.ends_with(
      "\"converters\": 2, \"converted_bytes\": 64, \"copies\": 0, \"copied_bytes\": 0, "
      "\"converted_constants\": 0, \"recomputed_nodes\": 0}"));
}

TEST_CASE("an explanation of a graph of any names is valid JSON") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  std::string last = "X";
  std::vector<std::string> expected;
  for (const auto& [name, utf8] : AwkwardNames()) {
    if (name.empty()) continue;
    graph.AddNode(OperatorDef("InLayouts", {last}, {name}).Name(name));
    expected.push_back(utf8);
    last = name;
  }
  graph.AddOutput(last);
  const Explanation explanation = Compile(graph).Explain();
  const auto json = nlohmann::json::parse(ToJson(explanation));
  REQUIRE(json["nodes"].size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(json["nodes"][i]["name"] == expected[i]);
    CHECK(Contains(json["nodes"][i]["text"].get<std::string>(), "'" + expected[i] + "'"));
  }
}

TEST_CASE("a variant runs when it is forced, and texts of the plan name it") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Varies", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  const Plan usual = Compile(graph);
  CHECK(usual.choice(0).config.variant.empty());
  CHECK(Contains(ToString(usual.Explain()), "    then reference threads=1: comes later among"));
  CHECK(Contains(ToJson(usual.Explain()), "\"config\": 1, \"variant\": \"threads=1\""));
  PlanOptions options;
  options.selection.forced.nodes = {{"Y", "reference", 1}};
  const Plan forced = Compile(graph, options);
  CHECK(forced.choice(0).name() == "reference threads=1");
  CHECK(Contains(ToString(forced), "Varies (X) -> (Y): reference threads=1, "));
  CHECK(Contains(ToString(forced), "backend reference: the selection asks for configuration 1"));
  CHECK(Contains(ToString(forced.Explain()), "Varies (X) -> (Y): reference threads=1\n"));
  const auto run = [](const Plan& plan) {
    return Executor(plan).Run({{"X", Tensor::From<float>({2}, {1, 2})}}).Get("Y");
  };
  CHECK(run(usual).ToVector<float>() == Floats{0, 0});
  CHECK(run(forced).ToVector<float>() == Floats{9, 9});
}

}  // namespace selection_test
