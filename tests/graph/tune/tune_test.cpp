#include "opkit/graph/tune/tune.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "opkit/core/layout_registry.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/op/observers.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/ops/control_flow.hpp"
#include "support/check_fails.hpp"
#include "support/sim_device.hpp"
#include "support/temporary_folder.hpp"
#include "support/tensors.hpp"

namespace tune_test {
namespace {

using namespace opkit;

// The time that has passed by what the kernels of this file say they take.
std::atomic<int64_t> g_now = 0;
std::atomic<int64_t> g_nanojoules = 0;
std::atomic<int64_t> g_disturbance = 0;  // ns by which the next kernel is slower
int64_t g_conversion_ns = 0;

class PlantedClock final : public TimingClock {
 public:
  int64_t Now() override { return g_now; }
  int64_t Preemptions() override { return 0; }
  int64_t Spin() override { return 1000; }
};

void Convert(const Tensor& from, Tensor& to) {
  g_now += g_conversion_ns;
  std::memcpy(to.raw_mutable_data(), from.raw_data(), static_cast<size_t>(from.nbytes()));
}
LayoutId Blocks() {
  static const LayoutId id = RegisterLayout(
      {.name = "planted_blocks", .to_standard = &Convert, .from_standard = &Convert});
  return id;
}

// y = x + 1 (+ the second input). The attribute with the kernel's name says how long it takes.
template <class Name>
class PlantedOp : public Operator<CPUContext> {
 public:
  PlantedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {
    const std::string variant = config ? config->variant : "";
    disturbs_ = def.args().Get<int64_t>("disturbs", 0);
    ns_ = def.args().Get<int64_t>(variant.empty() ? Name::kName : variant.c_str());
  }
  bool RunOnDevice() override {
    g_now += ns_ + g_disturbance.exchange(0);
    if (Name::kName == std::string("second")) g_disturbance = disturbs_;
    g_nanojoules += Name::kName == std::string("second") ? 10 * ns_ : ns_;
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const auto* from = static_cast<const float*>(x.raw_data());
    auto* to = static_cast<float*>(y->raw_mutable_data());
    for (int64_t i = 0; i < x.numel(); ++i) {
      float sum = from[i] + 1;
      for (int k = 1; k < InputSize(); ++k)
        sum += static_cast<const float*>(Input(k).raw_data())[i];
      to[i] = sum;
    }
    return true;
  }

 private:
  int64_t ns_, disturbs_;
};
struct First {
  static constexpr const char* kName = "first";
};
struct Second {
  static constexpr const char* kName = "second";
};
struct Plain {
  static constexpr const char* kName = "plain";
};
struct Blocked {
  static constexpr const char* kName = "blocked";
};
class SecondOp final : public PlantedOp<Second> {
 public:
  using PlantedOp::PlantedOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs(1);
    configs[0].scratch_bytes = query.def.args().Get<int64_t>("scratch", 0);
    if (query.def.args().Get<int64_t>("variant", 0) > 0) {
      configs.emplace_back();
      configs.back().variant = "variant";
    }
    return configs;
  }
  // Computes the next node too, for which the attribute "pair" says how long both take.
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    const auto pair = query.node.def.args().Get<int64_t>("pair", 0);
    if (pair == 0 || query.next.def.type() != "Planted" || !query.next_config.is_standard())
      return {};
    return FusedNode{OperatorDef("PlantedPair", query.node.def.inputs(), query.next.def.outputs())
                         .Arg("second", pair),
                     query.config};
  }
};
class BlockedOp final : public PlantedOp<Blocked> {
 public:
  using PlantedOp::PlantedOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.def.args().Get<int64_t>("blocked") < 0)
      throw UnsupportedOperatorFeature("it has no blocks");
    if (query.def.args().Get<bool>("follows", false) && query.inputs[0].layout.id != Blocks())
      throw UnsupportedOperatorFeature("input 0 comes in standard");
    KernelConfig config;
    config.input_layouts.assign(query.inputs.size(), Layout{Blocks(), {}});
    config.output_layouts = {Layout{Blocks(), {}}};
    return {config};
  }
};
OPERATOR_SCHEMA(Planted)
    .NumInputs(1, 3)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<int64_t>("first", "ns", 1000)
    .Arg<int64_t>("second", "ns", 1000)
    .Arg<int64_t>("variant", "ns; 0: none", 0)
    .Arg<int64_t>("blocked", "ns; -1: none", -1)
    .Arg<bool>("follows", "blocked only where the input comes in blocks", false)
    .Arg<int64_t>("plain", "ns", 50'000)
    .Arg<int64_t>("disturbs", "ns by which \"second\" makes the next kernel slower", 0)
    .Arg<int64_t>("scratch", "bytes that \"second\" needs for a run", 0)
    .Arg<int64_t>("pair", "ns of this and the next node; 0: not computed together", 0)
    .Arg<std::string>("id", "tells nodes apart", "");
OPERATOR_SCHEMA(PlantedPair)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<int64_t>("second", "ns", 0);
class PairOp final : public PlantedOp<Second> {
 public:
  using PlantedOp::PlantedOp;
};
REGISTER_CPU_OPERATOR_WITH_ENGINE(PlantedPair, tune_second, PairOp);
REGISTER_CPU_OPERATOR(Planted, PlantedOp<Plain>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Planted, tune_first, PlantedOp<First>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Planted, tune_second, SecondOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Planted, tune_blocks, BlockedOp);
OPKIT_REGISTER_BACKEND_RANK("tune_first", 90);
OPKIT_REGISTER_BACKEND_RANK("tune_second", 80);
OPKIT_REGISTER_BACKEND_RANK("tune_blocks", 70);

struct Costs {
  int64_t first = 1000, second = 1000, variant = 0, blocked = -1, plain = 50'000, pair = 0,
          scratch = 0, disturbs = 0;
  bool follows = false;
};
OperatorDef Node(const std::vector<std::string>& inputs, const std::string& output,
                 const Costs& costs) {
  return OperatorDef("Planted", inputs, {output})
      .Arg("first", costs.first)
      .Arg("second", costs.second)
      .Arg("variant", costs.variant)
      .Arg("blocked", costs.blocked)
      .Arg("plain", costs.plain)
      .Arg("pair", costs.pair)
      .Arg("scratch", costs.scratch)
      .Arg("disturbs", costs.disturbs)
      .Arg("follows", costs.follows)
      .Arg("id", output);  // or equal nodes would become one
}
// A graph of nodes one after the other.
Graph Chain(const std::vector<Costs>& costs) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  std::string last = "X";
  for (size_t i = 0; i < costs.size(); ++i) {
    const std::string next = StrCat("v", i);
    graph.AddNode(Node({last}, next, costs[i]));
    last = next;
  }
  graph.AddOutput(last);
  return graph;
}
TuneResult TunePlanted(const Graph& graph, PlanOptions plan = {}) {
  PlantedClock clock;
  plan.threads = 1;
  TuneOptions options;
  options.plan = std::move(plan);
  options.seconds = 1;
  options.clock = &clock;
  return Tune(graph, options);
}
std::string BackendOf(const TuneResult& result, const std::string& node) {
  const Selection::Node* const found = result.selection.Find(node);
  return found ? found->backend : "none";
}
// Returns the planted time of a run with this selection.
int64_t TimeOf(const Graph& graph, const Selection& selection) {
  PlanOptions options;
  options.threads = 1;
  options.selection.forced = selection;
  Executor executor(Compile(graph, options));
  const Tensor x = Tensor::From<float>({4}, {1, 2, 3, 4});
  executor.Run({{"X", x}});
  const int64_t begin = g_now;
  executor.Run({{"X", x}});
  return g_now - begin;
}

}  // namespace

TEST_CASE("a slow kernel of the first rank gives way to a measured faster one") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{.first = 3000, .second = 1000}, {.first = 1000, .second = 3000}});
  const TuneResult result = TunePlanted(graph);
  CHECK(BackendOf(result, "v0") == "tune_second");
  CHECK(BackendOf(result, "v1") == "tune_first");
  CHECK(result.best > 0);
  CHECK(result.is_complete);
  CHECK(result.plans[0].name == "default");
  CHECK(result.plans[0].times.median == 4000);
  CHECK(result.plans[result.best].times.median == 2000);
  CHECK(result.plans[result.best].speedup == 2);
  CHECK(result.predicted_ns == doctest::Approx(2000).epsilon(0.01));
  CHECK(TimeOf(graph, result.selection) == 2000);
  REQUIRE(result.nodes.size() == 2);
  CHECK(!result.nodes[0].is_default);
  CHECK(result.nodes[1].is_default);
  const TuneResult::Node& node = result.nodes[0];
  REQUIRE(node.chosen >= 0);
  CHECK(node.ways[static_cast<size_t>(node.chosen)].median == 1000);
  const std::string text = ToString(result);
  CHECK(Contains(text, "1 of 2 nodes have another kernel than by default"));
  CHECK(Contains(text, "  * tune_second on cpu, standard: 1.000 us (1.000 to 1.000)"));
}

TEST_CASE("the default stays where no plan is faster") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{}, {}});
  const TuneResult result = TunePlanted(graph);
  CHECK(result.best == 0);
  CHECK(BackendOf(result, "v0") == "tune_first");
  CHECK(BackendOf(result, "v1") == "tune_first");
}

TEST_CASE("the cost of conversions decides") {
  const std::vector<Costs> chain(4, Costs{.blocked = 700});
  g_conversion_ns = 500;  // there and back 1000, and four nodes win 1200
  CHECK(BackendOf(TunePlanted(Chain(chain)), "v2") == "tune_blocks");
  g_conversion_ns = 700;
  CHECK(BackendOf(TunePlanted(Chain(chain)), "v2") == "tune_first");
}

TEST_CASE("kernels that follow the layout of their input are tried in it") {
  g_conversion_ns = 300;
  std::vector<Costs> chain(4, Costs{.blocked = 500, .follows = true});
  chain[0] = {.blocked = 900};  // alone it would not pay
  const Graph graph = Chain(chain);
  const TuneResult result = TunePlanted(graph);
  for (const char* node : {"v0", "v1", "v2", "v3"}) CHECK(BackendOf(result, node) == "tune_blocks");
  CHECK(TimeOf(graph, result.selection) == 900 + 3 * 500 + 2 * 300);
}

TEST_CASE("a conversion for several readers is paid once") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(Node({"X"}, "v0", {}));
  for (const char* name : {"a", "b", "c"}) graph.AddNode(Node({"v0"}, name, {.blocked = 600}));
  graph.AddNode(Node({"a", "b", "c"}, "y", {.blocked = 1000}));
  graph.AddOutput("y");
  g_conversion_ns = 500;  // one before the three and one after y: 1000, and the three win 1200
  const TuneResult result = TunePlanted(graph);
  for (const char* node : {"a", "b", "c", "y"}) CHECK(BackendOf(result, node) == "tune_blocks");
  CHECK(BackendOf(result, "v0") == "tune_first");
  CHECK(TimeOf(graph, result.selection) == 1000 + 3 * 600 + 1000 + 2 * 500);
}

TEST_CASE("nodes are computed together where that is faster") {
  g_conversion_ns = 0;
  // "second" is slower for each node, but faster for both.
  const Graph graph = Chain({{.second = 1200, .pair = 1500}, {.second = 1300}});
  const TuneResult result = TunePlanted(graph);
  CHECK(BackendOf(result, "v0") == "tune_second");
  CHECK(TimeOf(graph, result.selection) == 1500);
  CHECK(Contains(ToString(result), "by the kernel of an earlier node"));
  // And apart where that is faster.
  const Graph other = Chain({{.second = 900, .pair = 2500}, {}});
  CHECK(TimeOf(other, TunePlanted(other).selection) == 1900);
}

TEST_CASE("a variant is tuned, and reaches the kernel") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{.second = 1500, .variant = 400}});
  const TuneResult result = TunePlanted(graph);
  CHECK(BackendOf(result, "v0") == "tune_second");
  CHECK(result.selection.nodes[0].variant == "variant");
  CHECK(TimeOf(graph, result.selection) == 400);
}

TEST_CASE("the nodes of a branch are tuned too") {
  g_conversion_ns = 0;
  Graph branch;
  branch.AddInput("x", DType::kUndefined, {});
  branch.AddNode(Node({"x"}, "p", {.first = 3000, .second = 1000}));
  branch.AddNode(Node({"p"}, "y", {.first = 1000, .second = 3000}));
  branch.AddOutput("y");
  Graph other;
  other.AddInput("x", DType::kUndefined, {});
  other.AddNode(Node({"x"}, "y", {.first = 3000, .second = 2000}));
  other.AddOutput("y");
  Graph graph;
  graph.AddInput("condition", DType::kBool, Shape{});
  graph.AddInput("x", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("If", {"condition", "x"}, {"out"})
                    .Arg("captures", std::vector<std::string>{"x"})
                    .Subgraph("then_branch", MakeSubgraph(branch))
                    .Subgraph("else_branch", MakeSubgraph(other)));
  graph.AddOutput("out");
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  options.inputs = {{"condition", Tensor::Scalar(true)}};
  const TuneResult result = Tune(graph, options);
  CHECK(BackendOf(result, "out/then_branch/p") == "tune_second");
  CHECK(BackendOf(result, "out/then_branch/y") == "tune_first");
  CHECK(result.plans[result.best].times.median == 2000);
  PlanOptions forced;
  forced.threads = 1;
  forced.selection.forced = result.selection;
  Executor executor(Compile(graph, forced));
  const int64_t begin = g_now;
  executor.Run(
      {{"condition", Tensor::Scalar(true)}, {"x", Tensor::From<float>({4}, {1, 2, 3, 4})}});
  CHECK(g_now - begin == 2000);
}

// The same operator on the simulated device. The attribute "plain" says how long it takes there.
class SimPlantedOp final : public Operator<sim_device::SimContext> {
 public:
  using Operator<sim_device::SimContext>::Operator;
  bool RunOnDevice() override {
    g_now += Arg<int64_t>("plain");
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      static_cast<float*>(y->raw_mutable_data())[i] =
          static_cast<const float*>(x.raw_data())[i] + 1;
    return true;
  }
};
OPKIT_REGISTER_DEVICE_OPERATOR(sim_device::kSim, Planted, SimPlantedOp);

TEST_CASE("the device is chosen by measurement too") {
  const sim_device::SimDevice device;
  g_conversion_ns = 0;
  PlanOptions plan;
  plan.devices = {Device{sim_device::kSim, 0}, Device{}};
  const auto device_of = [&](int64_t on_device) {
    const Graph graph = Chain({{.first = 2000, .plain = on_device}});
    CHECK(Compile(graph, plan).choice(0).device.type == sim_device::kSim);
    const TuneResult result = TunePlanted(graph, plan);
    return result.selection.nodes[0].device;
  };
  CHECK(device_of(9000) == "cpu");
  CHECK(device_of(500) == "sim");
}

TEST_CASE("choices that slow their neighbours down are taken back") {
  g_conversion_ns = 0;
  // By the sum of the nodes' times v0 wins 300 ns, but v1 then loses 1000.
  const Graph graph = Chain({{.first = 1000, .second = 700, .disturbs = 1000},
                             {.second = 9000},
                             {.second = 9000},
                             {.first = 1000, .second = 200}});
  const TuneResult result = TunePlanted(graph);
  CHECK(TimeOf(graph, result.selection) == 3200);
}

TEST_CASE("a plain kernel is chosen where it is the fastest") {
  g_conversion_ns = 0;
  CHECK(BackendOf(TunePlanted(Chain({{.plain = 200}})), "v0") == "reference");
}

TEST_CASE("forced kernels stay") {
  g_conversion_ns = 0;
  PlanOptions plan;
  plan.selection.forced.nodes = {{"v0", "tune_first"}};
  const TuneResult result = TunePlanted(Chain({{.second = 100}, {.second = 100}}), plan);
  CHECK(BackendOf(result, "v0") == "tune_first");
  CHECK(BackendOf(result, "v1") == "tune_second");
}

TEST_CASE("the tuned plan is the fastest of all selections") {
  std::mt19937 random(7);
  const auto draw = [&](int below) { return static_cast<int64_t>(random() % below); };
  const int graphs = 10;
  for (int number = 0; number < graphs; ++number) {
    CAPTURE(number);
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {4});
    std::vector<std::string> values = {"X"};
    const int nodes = 4;
    for (int i = 0; i < nodes; ++i) {
      // Each node reads the one before it, and perhaps one before that.
      std::vector<std::string> inputs = {values.back()};
      if (values.size() > 1 && draw(2) == 0) inputs.push_back(values[values.size() - 2]);
      values.push_back(StrCat("v", i));
      graph.AddNode(Node(inputs, values.back(),
                         {.first = 200 + 100 * draw(10),
                          .second = 200 + 100 * draw(10),
                          .blocked = draw(3) == 0 ? -1 : 100 + 100 * draw(10)}));
    }
    graph.AddOutput(values.back());
    g_conversion_ns = 100 * draw(6);
    const TuneResult result = TunePlanted(graph);
    int64_t least = 1'000'000;
    int count = 1;
    for (int i = 0; i < nodes; ++i) count *= 3;
    for (int code = 0; code < count; ++code) {
      Selection selection;
      bool is_possible = true;
      const auto& defs = graph.nodes();
      for (int i = 0, rest = code; i < nodes; ++i, rest /= 3) {
        const char* const backend = rest % 3 == 0   ? "tune_first"
                                    : rest % 3 == 1 ? "tune_second"
                                                    : "tune_blocks";
        is_possible &=
            rest % 3 != 2 || defs[static_cast<size_t>(i)].args().Get<int64_t>("blocked") > 0;
        selection.nodes.push_back({StrCat("v", i), backend});
      }
      if (is_possible) least = (std::min)(least, TimeOf(graph, selection));
    }
    CHECK(TimeOf(graph, result.selection) == least);
  }
}

TEST_CASE("a bound on the bytes, and memory as the objective") {
  g_conversion_ns = 0;
  // "second" is faster, and its variant needs no scratch.
  const Graph graph = Chain({{.first = 3000, .second = 1000, .variant = 2000, .scratch = 4096}});
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  CHECK(TimeOf(graph, Tune(graph, options).selection) == 1000);
  options.most_bytes = 4000;
  const TuneResult bounded = Tune(graph, options);
  CHECK(TimeOf(graph, bounded.selection) == 2000);
  CHECK(bounded.plans[bounded.best].bytes < 4000);
  options.most_bytes = 0;
  options.objective = TuneObjective::kMemory;
  const TuneResult least = Tune(graph, options);
  CHECK(TimeOf(graph, least.selection) == 2000);
  const std::vector<size_t> pareto = least.Pareto();
  REQUIRE(pareto.size() == 2);
  CHECK(least.plans[pareto[0]].times.median == 1000);
  CHECK(least.plans[pareto[1]].times.median == 2000);
  CHECK(pareto[1] == least.best);
  options.objective = TuneObjective::kTime;
  options.most_bytes = 1;
  const Graph large = Chain({{.first = 300, .second = 100, .scratch = 4096}, {.scratch = 64}});
  CheckFails([&] { Tune(large, options); }, "takes at most 1 bytes; the smallest takes ");
}

TEST_CASE("energy as the objective takes the plan of least joules") {
  g_conversion_ns = 0;
  // Each planted ns of "first" takes a nanojoule, and of "second" ten.
  class PlantedEnergy final : public EnergyCounter {
   public:
    double Joules() override { return static_cast<double>(g_nanojoules) * 1e-9; }
  };
  const Graph graph = Chain({{.first = 3000, .second = 1000}});
  PlantedClock clock;
  PlantedEnergy energy;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  options.energy = &energy;
  CHECK(BackendOf(Tune(graph, options), "v0") == "tune_second");
  options.objective = TuneObjective::kEnergy;
  const TuneResult result = Tune(graph, options);
  CHECK(BackendOf(result, "v0") == "tune_first");
  CHECK(result.plans[0].joules == doctest::Approx(3e-6));
  CHECK(Contains(ToString(result), "mJ a run"));
  options.energy = nullptr;
  CheckFails([&] { Tune(graph, options); }, "needs TuneOptions::energy");
}

TEST_CASE("several executors run at once") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{.first = 3000, .second = 1000}});
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  options.executors = 3;
  const TuneResult result = Tune(graph, options);
  CHECK(BackendOf(result, "v0") == "tune_second");
  // The planted clock adds up the three, and a run in the mean is one of them.
  CHECK(result.plans[0].times.median == 3000);
  options.executors = 0;
  CheckFails([&] { Tune(graph, options); }, "one executor or more");
}

TEST_CASE("a cache spares measurements, and a plan with tuning takes its kernels") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{.first = 3000, .second = 1000}, {.first = 1000, .second = 3000}});
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/tuning.json";
  PlanOptions plan;
  plan.threads = 1;
  plan.tuning.use = PlanOptions::TuningOptions::Use::kCached;
  plan.tuning.cache = path;
  CHECK(Compile(graph, plan).choice(0).kernel->backend == "tune_first");
  PlantedClock clock;
  TuningCache& cache = opkit::detail::SharedTuningCache(path);
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  options.cache = &cache;
  const TuneResult first = Tune(graph, options);
  CHECK(first.from_cache == 0);
  CHECK(cache.Save());
  const Plan tuned = Compile(graph, plan);
  CHECK(tuned.choice(0).kernel->backend == "tune_second");
  CHECK(tuned.choice(1).kernel->backend == "tune_first");
  const Explanation explanation = tuned.Explain();
  REQUIRE(explanation.nodes.size() == 2);
  REQUIRE(explanation.nodes[0].measured.size() >= 2);
  CHECK(explanation.nodes[0].measured[0].way == "tune_second on cpu, standard");
  CHECK(explanation.nodes[0].measured[0].median_ns == 1000);
  CHECK(explanation.nodes[0].measured[0].is_chosen);
  CHECK(Contains(ToString(explanation),
                 "    measured tune_second on cpu, standard: 1.000 us (1.000 to 1.000), chosen"));
  CHECK(Contains(ToJson(explanation), "\"measured\": [{\"way\": \"tune_second on cpu"));
  // With another cache in memory, the times of the file are known.
  TuningCache read(path);
  options.cache = &read;
  const TuneResult again = Tune(graph, options);
  CHECK(again.from_cache > 0);
  CHECK(again.plans_measured < first.plans_measured);
  CHECK(ToString(again.selection) == ToString(first.selection));
  // Other options are another plan.
  plan.schedule.deterministic = true;
  CHECK(Compile(graph, plan).choice(0).kernel->backend == "tune_first");
}

TEST_CASE("a plan measures what the cache does not have, if it may") {
  const Graph graph = Chain({{}});
  const TemporaryFolder folder;
  PlanOptions plan;
  plan.threads = 1;
  plan.tuning.use = PlanOptions::TuningOptions::Use::kMeasure;
  plan.tuning.cache = folder.path() + "/tuning.json";
  plan.tuning.seconds = 0.02;
  CHECK(Compile(graph, plan).has_shapes());
  CHECK(TuningCache(plan.tuning.cache).size() > 0);
}

// Takes 2 ms, or nothing.
template <int kMs>
class SleepOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(kMs));
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(TuneSleeps).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(TuneSleeps, tune_first, SleepOp<2>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(TuneSleeps, tune_second, SleepOp<0>);

// y = x + 1, in place where it may be.
class InPlaceOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    g_now += 1000;
    const Tensor& x = Input(0);
    auto* y = static_cast<float*>(Output(0, x.shape(), x.dtype())->raw_mutable_data());
    for (int64_t i = 0; i < x.numel(); ++i) y[i] = x.data<float>()[i] + 1;
    return true;
  }
};
OPERATOR_SCHEMA(TuneInPlace).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(TuneInPlace, InPlaceOp);

TEST_CASE("new shapes run at once, and take over tuned kernels between two runs") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, SymbolicShape{Sym("N")});
  graph.AddNode(OperatorDef("TuneSleeps", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  const TemporaryFolder folder;
  PlanOptions options;
  options.threads = 1;
  options.tuning.use = PlanOptions::TuningOptions::Use::kMeasure;
  options.tuning.online = true;
  options.tuning.seconds = 0.2;
  options.tuning.cache = folder / "tuning.json";
  const Plan plan = Compile(graph, options);
  Executor executor(plan);
  for (const int64_t extent : {2, 3}) {
    Tensor x(Shape{extent}, DType::kFloat32);
    x.mutable_data<float>()[0] = 5;
    executor.Run({{"X", x}});
    CHECK(plan.choice(0).kernel->backend == "tune_first");
    auto* const runs = Observe<RunCountObserver>(executor.op(0));
    int count = 0;
    for (; count < 100'000 && plan.choice(0).kernel->backend == "tune_first"; ++count)
      CHECK(executor.Run({{"X", x}}).Get("Y").data<float>()[0] == 5);
    CHECK(plan.choice(0).kernel->backend == "tune_second");
    CHECK(runs->runs() == count);  // the observer goes with the node
    executor.op(0).DetachObserver(runs);
  }
  // A plan that ends in the middle of a measurement waits for it only.
  const Plan short_lived = Compile(graph, options);
  Executor(short_lived).Run({{"X", Tensor(Shape{4}, DType::kFloat32)}});
}

TEST_CASE("tuning stops when it is told to, and keeps the default without a comparison") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{.first = 3000, .second = 1000}, {.first = 1000, .second = 3000}});
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  int calls = 0;
  options.progress = [&](const TuneProgress& progress) {
    CHECK(progress.most_seconds == 1);
    ++calls;
    return false;
  };
  const TuneResult result = Tune(graph, options);
  CHECK(calls == 1);
  CHECK(!result.is_complete);
  CHECK(result.plans.size() >= 2);
}

// Returns options that take kernels from a cache in the folder.
PlanOptions FromCache(const TemporaryFolder& folder, PlanOptions::TuningOptions::Use use) {
  PlanOptions options;
  options.threads = 1;
  options.tuning.use = use;
  options.tuning.cache = folder / "tuning.json";
  options.tuning.seconds = 0.05;
  return options;
}

TEST_CASE("a cached selection that does not fit never fails a Compile") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{}});
  const TensorInfo x(DType::kFloat32, Shape{4});
  for (const std::string selection :
       {"no selection", "v0\tPlanted\tno_backend\t0\n", "v0\tRelu\ttune_second\t0\n",
        "v0\tPlanted\ttune_second\t7\n", "v9\tPlanted\ttune_second\t0\n",
        "v0\tPlanted\ttune_first\t0\nv0\tPlanted\ttune_second\t0\n"}) {
    CAPTURE(selection);
    const TemporaryFolder folder;
    const PlanOptions options = FromCache(folder, PlanOptions::TuningOptions::Use::kCached);
    const Plan first = Compile(graph, options);
    opkit::detail::SharedTuningCache(options.tuning.cache)
        .AddPlan(opkit::detail::PlanKey(first.graph(), {x}, options, 1),
                 {.selection = selection, .tuned_ns = 1, .default_ns = 1});
    CHECK(Compile(graph, options).choice(0).kernel->backend == "tune_first");
  }
}

// Fails unless its input is 5.
class OnlyFiveOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
    return Input(0).data<float>()[0] == 5;
  }
};
OPERATOR_SCHEMA(TuneOnlyFive).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(TuneOnlyFive, OnlyFiveOp);

TEST_CASE("a graph that fails on random inputs is compiled, not tuned") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {1});
  graph.AddNode(OperatorDef("TuneOnlyFive", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  const TemporaryFolder folder;
  Executor executor(Compile(graph, FromCache(folder, PlanOptions::TuningOptions::Use::kMeasure)));
  CHECK(executor.Run({{"X", Tensor::From<float>({1}, {5})}}).Get("Y").data<float>()[0] == 5);
}

TEST_CASE("tuning in the background leaves alone what Compile changes afterwards") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddConstant("W", Tensor::From<float>({4}, {1, 2, 3, 4}));
  graph.AddNode(Node({"X", "W"}, "Y", {.first = 3, .blocked = 1, .plain = 50}));
  graph.AddOutput("Y");
  const TemporaryFolder folder;
  PlanOptions options = FromCache(folder, PlanOptions::TuningOptions::Use::kMeasure);
  options.tuning.online = true;
  options.memory.release_constants = true;
  Executor executor(Compile(graph, options));
  for (int i = 0; i < 200; ++i) {
    const auto y = executor.Run({{"X", Tensor::From<float>({4}, {5, 5, 5, 5})}});
    REQUIRE(y.Get("Y").ToVector<float>() == std::vector<float>{7, 8, 9, 10});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_CASE("Tune does not write to donated inputs") {
  g_conversion_ns = 0;
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.plan.memory.donated_inputs = {"X"};
  options.seconds = 1;
  options.clock = &clock;
  options.inputs = {{"X", Tensor::From<float>({4}, {1, 2, 3, 4})}};
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("TuneInPlace", {"X"}, {"V"}));
  graph.AddNode(OperatorDef("TuneInPlace", {"V"}, {"Y"}));
  graph.AddOutput("Y");
  Tune(graph, options);
  CHECK(options.inputs[0].tensor.ToVector<float>() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("a stopped tuning that found no faster plan is done again") {
  g_conversion_ns = 0;
  const Graph graph = Chain({{}});
  TuningCache cache("");
  PlantedClock clock;
  TuneOptions options;
  options.plan.threads = 1;
  options.seconds = 1;
  options.clock = &clock;
  options.cache = &cache;
  options.progress = [](const TuneProgress&) { return false; };
  CHECK(Tune(graph, options).best == 0);
  const TensorInfo x(DType::kFloat32, Shape{4});
  const std::string key =
      opkit::detail::PlanKey(Compile(graph, options.plan).graph(), {x}, options.plan, 1);
  CHECK(!cache.FindPlan(key));
  options.progress = {};
  CHECK(Tune(graph, options).best == 0);
  CHECK(cache.FindPlan(key));
}

TEST_CASE("wrong options of Tune are an Error") {
  const Graph graph = Chain({{}});
  CheckFails([&] { Tune(graph, {.seconds = 0}); }, "a time above 0");
  CheckFails([&] { Tune(graph, {.significance = 2}); }, "a significance in (0, 1]");
  CheckFails(
      [&] {
        Tune(graph, {.inputs = {{"Z", Tensor::From<float>({1}, {0})}}});
      },
      "names 'Z', which is no input");
  Graph open;
  open.AddInput("X", DType::kFloat32, SymbolicShape{Sym("N")});
  open.AddNode(Node({"X"}, "Y", {}));
  open.AddOutput("Y");
  CheckFails([&] { Tune(open); }, "input 'X' is float32[N]");
}

}  // namespace tune_test
