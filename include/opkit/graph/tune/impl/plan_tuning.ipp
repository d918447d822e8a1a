// Definitions of TunedKernels.
#ifndef OPKIT_GRAPH_TUNE_IMPL_PLAN_TUNING_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_PLAN_TUNING_IPP_

#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/cache/texts_hash.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/graph/explanation.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/tune/node_times.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/graph/tune/tuned_graph.hpp"
#include "opkit/version.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD inline void AddToHash(const Graph& graph, TextsHash& hash) {
  for (const Graph::Constant& constant : graph.constants()) {
    hash.Add(constant.name);
    hash.Add(ToString(TensorInfo::Of(constant.value)));
  }
  for (const OperatorDef& def : graph.nodes()) {
    for (const std::string& text : {def.type(), def.name(), ToString(def.device())}) hash.Add(text);
    hash.Add(StrCat(def.backends()));
    for (const auto* names : {&def.inputs(), &def.outputs(), &def.control_inputs()}) {
      for (const std::string& name : *names) hash.Add(name);
      hash.Add("");
    }
    for (const NamedAttribute& arg : def.args()) {
      hash.Add(arg.name);
      hash.Add(StrCat(arg.value));
    }
    for (const NamedSubgraph& item : def.subgraphs()) {
      hash.Add(item.name);
      if (const auto* body = dynamic_cast<const GraphSubgraph*>(item.graph.get()))
        AddToHash(body->graph, hash);
    }
  }
  for (const std::string& output : graph.outputs()) hash.Add(output);
}

OPKIT_COLD OPKIT_INLINE std::string PlanKey(const Graph& graph,
                                            const std::vector<TensorInfo>& inputs,
                                            const PlanOptions& options, int threads) {
  TextsHash hash;
  AddToHash(graph, hash);
  for (size_t i = 0; i < inputs.size(); ++i) {
    hash.Add(graph.inputs()[i].name);
    hash.Add(StrCat(ToString(inputs[i].dtype), ToString(inputs[i].shape),
                    inputs[i].constant ? " default" : ""));
  }
  for (const OpRegistry::Backend& backend : OpRegistry::Global().Backends())
    hash.Add(StrCat(backend.name, " ", OpRegistry::Global().BackendVersion(backend.name), " ",
                    backend.kernels, backend.why_unavailable.empty() ? "" : " unavailable"));
  for (const std::string& backend : options.backends) hash.Add(backend);
  for (const Device device : options.devices) hash.Add(ToString(device));
  hash.Add(ToString(options.selection.forced));
  hash.Add(StrCat(static_cast<int>(options.backend_need), " ", options.memory.capacity_bytes, " ",
                  options.schedule.deterministic, " ", static_cast<int>(options.schedule.mode)));
  return StrCat("opkit ", OPKIT_VERSION_STRING, "; plan of ", graph.num_nodes(), " nodes ",
                hash.text(), StrCat("; threads ", threads));
}

OPKIT_COLD OPKIT_INLINE std::string TimeKey(const std::string& key, int threads) {
  return StrCat("opkit ", OPKIT_VERSION_STRING, "; threads ", threads, "; ", key);
}

OPKIT_COLD OPKIT_INLINE TuningCache& SharedTuningCache(const std::string& path) {
  // Never destroyed: plans may be made until the process ends.
  static auto* const mutex = new Mutex;
  static auto* const caches = new std::vector<std::unique_ptr<TuningCache>>;
  const std::string file = path.empty() ? TuningCache::DefaultPath() : path;
  MutexLock lock(*mutex);
  for (const auto& one : *caches)
    if (one->path() == file) return *one;
  caches->push_back(std::make_unique<TuningCache>(file));
  return *caches->back();
}

// The measurements of a plan in the background, one after the other: two at the same time would
// disturb each other.
class BackgroundTuning final : public RefCounted {
 public:
  // Waits for the thread, which IsOver asks to end.
  ~BackgroundTuning() override {
    is_over_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  // Calls `work` on a thread, once for each key. Does nothing if much is waiting already.
  void Start(const std::string& key, UniqueFunction<void()> work) {
    constexpr size_t kMostWaiting = 16;
    MutexLock lock(mutex_);
    if (waiting_.size() >= kMostWaiting || !keys_.insert(key).second) return;
    waiting_.push_back(std::move(work));
    if (is_running_) return;
    if (thread_.joinable()) thread_.join();
    is_running_ = true;
    thread_ = std::thread([this] { Work(); });
  }
  // Relaxed: a thread that reads the flag a little later only ends a little later.
  bool IsOver() const { return is_over_.load(std::memory_order_relaxed); }

 private:
  void Work() {
    for (;;) {
      UniqueFunction<void()> work;
      {
        MutexLock lock(mutex_);
        if (waiting_.empty() || IsOver()) {
          is_running_ = false;
          return;
        }
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      work();
    }
  }

  std::atomic<bool> is_over_{false};
  Mutex mutex_;
  std::set<std::string> keys_;
  std::deque<UniqueFunction<void()>> waiting_;
  bool is_running_ = false;
  std::thread thread_;
};

OPKIT_COLD OPKIT_INLINE PlanOptions ForPreparedGraph(PlanOptions options) {
  static const PassList* const no_passes = new PassList;
  options.passes = no_passes;
  options.partitioners.clear();
  options.tuning = {};
  return options;
}

// Measures the plan of the graph and adds it to its cache, with this key.
OPKIT_COLD inline Selection MeasurePlan(const Graph& graph, const std::string& key,
                                        PlanOptions options, const BackgroundTuning* background) {
  TuningCache& cache = SharedTuningCache(options.tuning.cache);
  TuneOptions tune;
  tune.seconds = options.tuning.seconds;
  tune.cache = &cache;
  if (background)
    tune.progress = [background](const TuneProgress&) { return !background->IsOver(); };
  tune.plan = ForPreparedGraph(std::move(options));
  TuneResult result = Tune(graph, tune);
  // Tune has the key of a graph in which nodes run again (PlanOptions::memory.recompute).
  if (!cache.FindPlan(key) && (result.best > 0 || !background || !background->IsOver()))
    cache.AddPlan(key, {.selection = ToString(result.selection),
                        .tuned_ns = result.plans[result.best].times.median,
                        .default_ns = result.plans[0].times.median});
  cache.Save();
  return std::move(result.selection);
}

OPKIT_COLD OPKIT_INLINE Selection TunedKernels(const PlanState& state,
                                               const std::vector<TensorInfo>& inputs) {
  const PlanOptions& options = state.options();
  const TuningCache& cache = SharedTuningCache(options.tuning.cache);
  std::string key = PlanKey(state.graph(), inputs, options, state.pool().threads());
  if (const std::optional<TunedPlan> found = cache.FindPlan(key)) try {
      return ParseSelection(found->selection);
    } catch (const Error&) {
      return {};  // no text of ToString: the plan has the kernels by the usual rules
    }
  if (options.tuning.use != PlanOptions::TuningOptions::Use::kMeasure) return {};
  std::vector<TensorInfo> types;  // without pointers to the caller's data
  std::vector<Graph::Input> known = state.graph().inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    types.emplace_back(inputs[i].dtype, inputs[i].shape);
    known[i].info.dtype = inputs[i].dtype;
    known[i].info.shape = inputs[i].shape;
    if (!inputs[i].constant) known[i].default_value = Tensor();  // a run gives another tensor
  }
  Graph graph = WithInputs(state.graph(), known);
  if (!options.tuning.online) try {
      return MeasurePlan(graph, key, options, nullptr);
    } catch (const Error&) {
      return {};  // a graph that cannot run on random inputs may run on others
    }
  if (!state.background()) state.background() = MakeIntrusive<BackgroundTuning>();
  auto& background = static_cast<BackgroundTuning&>(*state.background());
  // The thread has a graph and options of its own: Compile may still change those of the plan.
  auto own = std::make_shared<const std::pair<Graph, PlanOptions>>(std::move(graph), options);
  background.Start(key, [&state, &background, own, key, types = std::move(types)] {
    try {
      MeasurePlan(own->first, key, own->second, &background);
      // Other kernels might read constants that Compile has released.
      if (!background.IsOver() && !own->second.memory.release_constants) state.SelectAgain(types);
    } catch (const std::exception&) {
      // Runs keep the kernels that they have; an error of the graph is one of theirs too.
    }
  });
  return {};
}

OPKIT_COLD inline void AddMeasuredOf(const Specialization& plan, const std::string& prefix,
                                     const PlanState& state,
                                     std::vector<Explanation::Node>& nodes) {
  const TuningCache& cache = SharedTuningCache(state.options().tuning.cache);
  KernelSelector::Options options;
  options.backend_need = state.options().backend_need;
  options.devices = &state.options().devices;
  const TunedGraph graph(plan, prefix, options);
  for (int step = 0; step < plan.schedule().size(); ++step) {
    const int node = plan.schedule().original_of(step);
    const std::vector<int> parts = plan.PartsOf(node);
    if (parts.empty()) continue;
    Explanation::Node& out = nodes[Index(step)];
    const NodeChoice& chosen = plan.plan_choice(parts[0]);
    const std::string way = WayKey(*chosen.kernel, chosen.device, chosen.config);
    for (const TunedGraph::Choice& choice : graph.choices(parts[0]))
      if (const auto time = cache.FindTime(TimeKey(choice.key, state.pool().threads())))
        out.measured.push_back(
            {choice.way, time->median_ns, time->low_ns, time->high_ns, choice.way == way});
    StableSort(out.measured,
               [](const auto& a, const auto& b) { return a.median_ns < b.median_ns; });
    size_t number = 0;
    for (const std::unique_ptr<PlannedBody>& body : plan.BodiesOf(node))
      AddMeasuredOf(*body->plan, prefix + SelectionPrefix(graph.name(parts[0]), body->name), state,
                    out.bodies[number++].nodes);
  }
}
OPKIT_COLD OPKIT_INLINE void AddMeasured(const PlanState& state, Explanation& explanation) {
  AddMeasuredOf(*state.GetLatest(), "", state, explanation.nodes);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_IMPL_PLAN_TUNING_IPP_
