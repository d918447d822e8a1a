// Mixed graphs under plans of every option, forced selections, partitioners, and as nets.
#ifndef OPKIT_TESTS_STRESS_MIXED_PROGRAMS_HPP_
#define OPKIT_TESTS_STRESS_MIXED_PROGRAMS_HPP_

#include <optional>
#include <thread>

#include "mixed_runs.hpp"
#include "opkit/graph/print/print.hpp"
#include "opkit/graph/simple_net.hpp"

namespace mixed_programs {

class MixedProgram {
 public:
  explicit MixedProgram(Random random) : random_(random), case_(random_) {
    g_details = ToString(case_.known());
  }

  void Run(int most_threads) {
    const int chance = 200 + 4 * case_.open().num_nodes();
    const bool faulty = random_.OneIn(4);
    {
      const Faults faults(faulty ? chance : 0, faulty ? 4 * chance : 0);
      for (int way = random_.Between(2, 6); way > 0; --way)
        DoneOrRefused(case_, [&] { RunOneWay(most_threads); });
    }
    DrainStreams();
    Require(mixed_ops::LiveBytesThere() == 0, "bytes of the device were left");
  }

 private:
  void RunOneWay(int most_threads) {
    const bool faulty = g_operator_faults != 0;  // then a pass or a body may be left out
    switch (random_.Below(faulty ? 4 : 6)) {
      case 0:
        return RunNet(case_.known());
      case 1:
        return RunPartitioned(most_threads);
      case 4:
      case 5:
        return RunSelected(most_threads);
      default: {
        const bool is_open = random_.OneIn(2);
        const Graph& graph = is_open ? case_.open() : case_.known();
        const PlanOptions options = Options(graph, most_threads, is_open);
        return RunPlan(graph, Compile(graph, options), options);
      }
    }
  }

  PlanOptions Options(const Graph& graph, int most_threads, bool is_open) {
    PlanOptions options;
    options.threads = random_.Below(most_threads + 1);
    options.schedule.deterministic = random_.OneIn(4);
    if (random_.OneIn(3)) {
      options.devices = {Device{mixed_ops::kThere}, Device{}};
      if (random_.OneIn(2)) std::swap(options.devices[0], options.devices[1]);
    }
    constexpr ReplayMode kModes[] = {ReplayMode::kAuto, ReplayMode::kCounters, ReplayMode::kLevels,
                                     ReplayMode::kWalk};
    const bool few = case_.options().streams || case_.options().there || !options.devices.empty() ||
                     options.schedule.deterministic;
    options.schedule.mode = kModes[random_.Below(few ? 2 : 4)];
    static const PassList none;
    if (random_.OneIn(2)) options.passes = &none;
    if (random_.OneIn(3)) options.partitioners = {Partitioner()};
    options.memory.search.max_steps = random_.OneIn(3) ? -1 : 0;
    options.memory.reorder_nodes = random_.OneIn(3);
    static const std::vector<std::string> kBackends[] = {
        {}, {"reference"}, {"layouts"}, {"strided", "layouts"}};
    options.backends = kBackends[random_.Below(4)];
    if (random_.OneIn(4)) options.selection.objective = Selection::Objective::kMemory;
    if (random_.OneIn(2))
      for (const Graph::Input& input : graph.inputs())
        if (!case_.IsRewritten(input.name) && !graph.IsOutput(input.name) && random_.OneIn(2) &&
            input.info.dtype == DType::kInt64)
          options.memory.donated_inputs.push_back(input.name);
    options.memory.release_constants = !is_open && random_.OneIn(4);
    options.memory.verify = true;
    options.max_shapes = random_.Between(1, 3);
    return options;
  }
  PartitionerRequest Partitioner() {
    PartitionArguments arguments = {{"seed", std::to_string(random_.Below(1000))}};
    if (random_.OneIn(3)) arguments.push_back({"min_size", "2"});
    if (random_.OneIn(3)) arguments.push_back({"max_size", "3"});
    return {"mixed", arguments};
  }

  // On threads at once, sometimes.
  void RunPlan(const Graph& graph, const Plan& plan, const PlanOptions& options) {
    const auto use = [&](Random random) {
      MixedRuns runs(random, case_, graph, plan, options);
      for (int run = random.Between(1, 5); run > 0; --run) {
        const Scope& inputs = case_.inputs()[detail::Index(random.Below(3))];
        if (&graph == &case_.open() || case_.Fits(inputs)) runs.Run(inputs);
      }
    };
    std::optional<std::thread> other;
    if (random_.OneIn(6))
      other.emplace([&, own = Random(random_.Next())] { Done([&] { use(own); }, false); });
    const Random own(random_.Next());
    Done([&] { use(own); }, false);
    if (other) other->join();
  }
  // A selection that Compile has made can be forced in another plan; a selection that does not fit
  // is refused.
  void RunSelected(int most_threads) {
    const Graph& graph = case_.known();
    PlanOptions options = Options(graph, most_threads, false);
    const Selection chosen = Compile(graph, options).selection();
    PlanOptions forced = Options(graph, most_threads, false);
    forced.passes = options.passes;
    forced.partitioners = options.partitioners;
    forced.devices = options.devices;
    // Values that are rewritten may keep a branch from other devices.
    if (!case_.options().rewrites && random_.OneIn(2)) std::ranges::reverse(forced.devices);
    forced.selection.forced = ParseSelection(ToString(chosen));
    const Plan plan = Compile(graph, forced);
    // A branch that the first plan has left to its node may be planned here.
    const std::string found = "\n" + ToString(plan.selection());
    for (const Selection::Node& kernel : chosen.nodes) {
      const std::string line = "\n" + ToString(Selection{{kernel}});
      Require(found.find(line) != found.npos,
              "a forced selection gives another one, without" + line);
    }
    RunPlan(graph, plan, forced);
    if (forced.selection.forced.nodes.empty()) return;
    Selection::Node& wrong = forced.selection.forced.nodes[detail::Index(
        random_.Below(static_cast<int>(forced.selection.forced.nodes.size())))];
    switch (random_.Below(4)) {
      case 0:
        wrong.backend = "nobody";
        break;
      case 1:
        wrong.op = "Nothing";
        break;
      case 2:
        wrong.config = 1000;
        wrong.layouts = "no layout";
        break;
      default:
        wrong.device = "nowhere";
    }
    bool refused = false;
    try {
      Compile(graph, forced);
    } catch (const Error&) {
      refused = true;
    }
    Require(refused,
            "a selection that cannot be forced was accepted: " + ToString(Selection{{wrong}}));
  }
  void RunPartitioned(int most_threads) {
    const Graph graph = Partition(case_.known(), {Partitioner()});
    if (random_.OneIn(2)) return RunNet(graph);
    PlanOptions options = Options(graph, most_threads, false);
    RunPlan(graph, Compile(graph, options), options);
  }
  void RunNet(const Graph& graph) {
    if (case_.options().there) return;  // no copies between devices in this net
    for (const Scope& inputs : case_.inputs()) {
      if (!case_.Fits(inputs)) continue;
      Scope scope = inputs;
      Workspace ws;
      for (const auto& [name, held] : inputs)
        *ws.CreateTensor(name) = held.shape.empty()
                                     ? Tensor::Scalar(held.elements[0] != 0)
                                     : Tensor::From<int64_t>(Shape(held.shape), held.elements);
      SimpleNet net(graph, &ws);
      net.Run();
      Evaluate(graph, scope);
      for (const std::string& output : graph.outputs())
        RequireSame(*ws.GetTensor(output), scope.at(output), "output " + output + " of a net");
      for (const auto& [name, held] : inputs)
        RequireSame(*ws.GetTensor(name), scope.at(name), "input " + name + " of a net");
      case_.CheckConstants();
    }
  }

  Random random_;
  const MixedCase case_;
};

}  // namespace mixed_programs

#endif  // OPKIT_TESTS_STRESS_MIXED_PROGRAMS_HPP_
