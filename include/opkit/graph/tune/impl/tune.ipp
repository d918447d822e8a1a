// Definitions of Tune.
#ifndef OPKIT_GRAPH_TUNE_IMPL_TUNE_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_TUNE_IPP_

#include <algorithm>
#include <memory>
#include <set>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/tune/cost_table.hpp"
#include "opkit/graph/tune/executor_crew.hpp"
#include "opkit/graph/tune/node_times.hpp"
#include "opkit/graph/tune/plan_tuning.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/graph/tune/tuned_graph.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/profile/mann_whitney.hpp"
#include "opkit/version.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

class OPKIT_IMAGE_LOCAL Tuner {
 public:
  Tuner(const Graph& graph, const TuneOptions& options)
      : options_(options),
        clock_(options.clock ? *options.clock : machine_clock_),
        begin_(machine_clock_.Now()) {
    MakeInputs(graph);
    PlanOptions first = options_.plan;
    first.tuning = {};
    first.memory.donated_inputs.clear();     // all runs, of all executors, read the same tensors
    first.memory.release_constants = false;  // the other plans need them
    default_ = Make(graph, "default", first);
    // The other plans start from the default's graph, whose passes and partitioners have run.
    graph_ = default_->executor.plan().graph();
    FindGraphs(*default_->executor.plan().state()->GetLatest());
  }

  TuneResult Tune() {
    TakeFromCache();
    Measure(*default_);
    for (const std::string& backend : BackendsToTry()) TryBackend(backend);
    result_.is_complete = Explore();
    Refine();
    if (SeeksMemory()) ExploreMemory();
    Compare();
    if (options_.energy) CompareEnergy();
    Choose();
    Report();
    PutInCache();
    result_.seconds = Seconds();
    return std::move(result_);
  }

 private:
  // A plan with its executors, ready to run.
  struct Candidate {
    Candidate(std::string its_name, Plan plan) : name(std::move(its_name)), executor(plan) {}
    // Runs every executor once, at the same time.
    void Run() {
      if (!crew) return executor.Run();
      crew->Run(executor);
    }
    std::string name;
    Executor executor;
    std::unique_ptr<ExecutorCrew> crew;  // of more executors; null: none
    bool is_kept = false;                // of a backend, or for less memory: Forget keeps it
    Selection asked;                     // the choices that it was made for; empty for the default
    double relative = 1;                 // its median against the default's in the same moment
    double predicted = 0;                // ns
  };

  std::string CacheKey(const std::string& key) const {
    return TimeKey(
        options_.executors > 1 ? StrCat("executors ", options_.executors, "; ", key) : key,
        default_->executor.plan().threads());
  }
  void TakeFromCache() {
    if (!options_.cache) return;
    for (const auto& graph : graphs_)
      graph->ForEachKey([&](const std::string& key, bool is_pair) {
        if (table_.Find(key)) return;
        const std::optional<MeasuredTime> found = options_.cache->FindTime(CacheKey(key));
        if (!found) return;
        CallTimes times;
        times.median = found->median_ns;
        times.low = found->low_ns;
        times.high = found->high_ns;
        table_.AddSummary(key, times);
        if (is_pair) table_.AddPair(key, true);
        ++result_.from_cache;
      });
  }
  void PutInCache() {
    if (!options_.cache) return;
    for (const auto& [key, times] : table_.times())
      if (!times.ns.empty())
        options_.cache->AddTime(CacheKey(key), {.median_ns = times.median,
                                                .low_ns = times.low,
                                                .high_ns = times.high,
                                                .samples = static_cast<int64_t>(times.ns.size())});
    // A tuning that was stopped before it found a faster plan says nothing about the default.
    if (is_stopped_ && result_.best == 0) return;
    // Compile takes plans for the shortest run alone.
    if (options_.objective != TuneObjective::kTime || options_.most_bytes > 0 ||
        options_.executors > 1)
      return;
    std::vector<TensorInfo> inputs;
    for (const NamedTensor& input : inputs_)
      inputs.emplace_back(input.tensor.dtype(), input.tensor.shape());
    options_.cache->AddPlan(
        PlanKey(graph_, inputs, options_.plan, default_->executor.plan().threads()),
        {.selection = ToString(result_.selection),
         .tuned_ns = result_.plans[result_.best].times.median,
         .default_ns = result_.plans[0].times.median});
  }

  double Seconds() { return static_cast<double>(machine_clock_.Now() - begin_) * 1e-9; }
  bool IsTimeLeft(double share) {
    if (is_stopped_) return false;
    const double seconds = Seconds();
    if (options_.progress) {
      TuneProgress progress{stage_, seconds, options_.seconds, result_.plans_measured, 1};
      for (const auto& one : others_)
        progress.speedup = (std::max)(progress.speedup, 1 / one->relative);
      if (!options_.progress(progress)) is_stopped_ = true;
    }
    return !is_stopped_ && seconds < share * options_.seconds;
  }

  void MakeInputs(const Graph& graph) {
    uint64_t seed = options_.seed;
    for (const Graph::Input& input : graph.inputs()) {
      const auto given = std::ranges::find(options_.inputs, input.name, &NamedTensor::name);
      if (given != options_.inputs.end()) {
        inputs_.push_back(*given);
        continue;
      }
      if (input.has_default()) {
        inputs_.push_back({input.name, input.default_value});
        continue;
      }
      if (input.info.dtype == DType::kUndefined || !input.info.shape.is_known())
        Throw(ErrorCode::kInvalidArgument,
              "Tune needs the dtype and the shape of every input, or "
              "a tensor for it in TuneOptions::inputs; input '",
              input.name, "' is ", ToString(input.info));
      inputs_.push_back({input.name, Random(input.info, ++seed)});
    }
    for (const NamedTensor& given : options_.inputs)
      if (!std::ranges::count(inputs_, given.name, &NamedTensor::name))
        Throw(ErrorCode::kNotFound, "TuneOptions::inputs names '", given.name,
              "', which is no input of the graph");
  }
  // Numbers in [0, 1), integers 0 or 1: indices of any table.
  static Tensor Random(const TensorInfo& info, uint64_t seed) {
    Tensor tensor(info.shape.ToShape(), info.dtype);
    const bool is_integer = IsInteger(info.dtype) || info.dtype == DType::kBool;
    CheckRandom random(seed);
    const int64_t numbers = tensor.numel() * NumbersPerElement(info.dtype);
    for (int64_t i = 0; i < numbers; ++i)
      SetNumber(tensor, i, is_integer ? static_cast<double>(random.Next() & 1) : random.Uniform());
    return tensor;
  }

  std::unique_ptr<Candidate> Make(const Graph& graph, const std::string& name,
                                  const PlanOptions& options) {
    auto candidate = std::make_unique<Candidate>(name, Compile(graph, options));
    for (const NamedTensor& input : inputs_) candidate->executor.Bind(input.name, input.tensor);
    candidate->executor.Run();
    std::vector<std::unique_ptr<Executor>> more;
    for (int i = 1; i < options_.executors; ++i) {
      more.push_back(std::make_unique<Executor>(candidate->executor.plan()));
      for (const NamedTensor& input : inputs_) more.back()->Bind(input.name, input.tensor);
    }
    if (!more.empty()) candidate->crew = std::make_unique<ExecutorCrew>(std::move(more));
    candidate->Run();
    return candidate;
  }
  PlanOptions OptionsOfOthers() const {
    PlanOptions options = ForPreparedGraph(options_.plan);
    options.memory.donated_inputs.clear();
    options.memory.release_constants = false;
    return options;
  }
  // Returns null if the plan does not fit PlanOptions::memory.capacity_bytes.
  std::unique_ptr<Candidate> MakeOther(const std::string& name, const PlanOptions& options) {
    try {
      return Make(graph_, name, options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      return nullptr;
    }
  }
  std::unique_ptr<Candidate> MakeFor(const Selection& selection, const std::string& name) {
    PlanOptions options = OptionsOfOthers();
    for (const Selection::Node& node : selection.nodes)
      if (!options_.plan.selection.forced.Find(node.node)) {
        options.selection.forced.nodes.push_back(node);
        options.selection.forced.nodes.back().required = false;
      }
    auto candidate = MakeOther(name, options);
    if (candidate) candidate->asked = options.selection.forced;
    return candidate;
  }

  void FindGraphs(const Specialization& plan) {
    const PreferenceScope scope(default_->executor.plan().state()->preferences());
    const PlanOptions& options = options_.plan;
    KernelSelector::Options selection;
    selection.backend_need = options.backend_need;
    selection.forced = options.selection.forced.nodes.empty() ? nullptr : &options.selection.forced;
    selection.devices = &options_.plan.devices;
    ForEachPlanned(plan, {}, [&](const Specialization& planned, const std::string& prefix) {
      graphs_.push_back(std::make_unique<TunedGraph>(planned, prefix, selection));
    });
  }
  // The backends that some node can have, besides the plain one.
  std::set<std::string> BackendsToTry() const {
    std::set<std::string> backends;
    for (const auto& graph : graphs_)
      for (int node = 0; node < graph->plan().plan_view().num_nodes(); ++node)
        for (const TunedGraph::Choice& choice : graph->choices(node))
          if (choice.rated.candidate.backend != kReferenceBackend)
            backends.insert(choice.rated.candidate.backend);
    return backends;
  }
  void TryBackend(const std::string& backend) {
    PlanOptions options = OptionsOfOthers();
    options.backends.insert(options.backends.begin(), backend);
    auto candidate = MakeOther(backend + " first", options);
    if (!candidate || ToString(candidate->executor.plan().selection()) ==
                          ToString(default_->executor.plan().selection()))
      return;
    candidate->asked = ChoicesOf(candidate->executor.plan());
    Measure(*candidate);
    candidate->is_kept = true;
    others_.push_back(std::move(candidate));
  }

  // Returns the choices of a plan, those of nodes that a kernel of the same backend computes
  // included, so that they are computed together again.
  static Selection ChoicesOf(const Plan& plan) {
    Selection selection;
    AppendSelection(*plan.state()->GetLatest(), {}, /*computed_too=*/true, selection);
    return selection;
  }

  // Runs the candidate and the default plan in turns, and takes the times of the candidate's nodes.
  void Measure(Candidate& candidate) {
    constexpr int kFewest = 5, kMost = 100, kFewestOfSlow = 3;
    constexpr double kSlow = 3;          // against the default plan
    constexpr double kShare = 0.03;      // of the whole time, for one plan
    constexpr double kMostShare = 0.08;  // from then on, kFewestOfSlow rounds are enough
    const bool is_default = &candidate == default_.get();
    NodeTimes base_times(default_->executor, clock_);
    std::unique_ptr<NodeTimes> times;
    if (!is_default) times = std::make_unique<NodeTimes>(candidate.executor, clock_);
    std::vector<double> base, own;
    const auto run = [&](Candidate& one, NodeTimes& nodes, std::vector<double>& ns) {
      if (first_base_ < kLongNs) {  // warms the caches
        one.Run();
        nodes.EndRun(false);
      }
      const int64_t begin = clock_.Now();
      one.Run();
      const int64_t end = clock_.Now();
      nodes.EndRun(true);
      ns.push_back(static_cast<double>(end - begin));
    };
    const double begin = Seconds();
    for (int round = 0; round < kMost; ++round) {
      const double share = (Seconds() - begin) / options_.seconds;
      if (round >= (share > kMostShare ? kFewestOfSlow : kFewest) && share > kShare) break;
      if (round >= kFewestOfSlow && !own.empty() && own.back() > kSlow * base.back()) break;
      run(*default_, base_times, base);
      if (times) run(candidate, *times, own);
    }
    const double base_median = MedianOf(base);
    if (first_base_ == 0) first_base_ = base_median;
    // How much slower or faster the machine is in this moment than it was in the first. Of few runs
    // a disturbed one would count too much.
    const bool is_known = static_cast<int>(base.size()) >= kFewestOfSlow && base_median > 0;
    const double drift = is_known && first_base_ > 0 ? base_median / first_base_ : 1;
    Learn(base_times, drift);
    if (times) {
      Learn(*times, drift);
      candidate.relative = base_median > 0 ? MedianOf(own) / base_median : 1;
    }
    ++result_.plans_measured;
  }
  static double MedianOf(const std::vector<double>& ns) {
    CallTimes times;
    times.ns = ns;
    Summarize(times);
    return times.median;
  }

  // Returns the index in graphs_; -1 for a body that the default plan does not plan.
  int GraphNumber(const std::string& prefix) const {
    const auto found = std::ranges::find(graphs_, prefix, &TunedGraph::prefix);
    return found == graphs_.end() ? -1 : static_cast<int>(found - graphs_.begin());
  }
  // Adds the times of a plan's nodes to the table.
  void Learn(const NodeTimes& times, double drift) {
    for (const NodeTimes::Row& row : times.rows()) {
      std::vector<double> ns = row.ns;
      for (double& one : ns) one /= drift;
      const Specialization& plan = *row.specialization;
      const std::vector<int> parts = plan.PartsOf(row.node);
      if (parts.empty()) {
        const TensorInfo& from = plan.types()[plan.view().inputs(row.node)[0]];
        const TensorInfo& to = plan.types()[plan.view().outputs(row.node)[0]];
        table_.Add(ConversionKey(from, {from.layout, from.device}, {to.layout, to.device}), ns);
        continue;
      }
      const std::string head = StrCat(WorkOf(plan, parts[0]), " by ", WayOf(plan, parts[0]));
      if (parts.size() == 1) {
        table_.Add(head, ns);
        NoteUnfused(plan, row.node, parts[0], head);
        continue;
      }
      std::string left = head;
      for (size_t i = 1; i < parts.size(); ++i) {
        const std::string part = PartOf(plan, parts[i]);
        table_.AddPair(TunedGraph::PairKey(left, part), true);
        if (i == 1) table_.Add(TunedGraph::PairKey(left, part), ns);
        left = part;
      }
      NoteUnfused(plan, row.node, parts.back(), left);
    }
  }
  // Notes that the plan does not compute the reader of a node together with it.
  void NoteUnfused(const Specialization& plan, int running, int last, const std::string& left) {
    const GraphView& view = plan.plan_view();
    for (const int value : view.outputs(last)) {
      if (value < 0 || view.consumers(value).size() != 1) continue;
      const int next = view.consumers(value)[0];
      // The selection has kept a node of another backend apart.
      if (plan.NodeOf(next) == running ||
          plan.plan_choice(next).kernel->backend != plan.plan_choice(last).kernel->backend)
        continue;
      table_.AddPair(TunedGraph::PairKey(left, PartOf(plan, next)), false);
    }
  }
  static std::string WorkOf(const Specialization& plan, int node) {
    const GraphView& view = plan.plan_view();
    return WorkKey(view.graph().node(node), plan.plan_types().Of(view.inputs(node)),
                   plan.plan_types().Of(view.outputs(node)));
  }
  static std::string WayOf(const Specialization& plan, int node) {
    const NodeChoice& choice = plan.plan_choice(node);
    return WayKey(*choice.kernel, choice.device, choice.config);
  }
  static std::string PartOf(const Specialization& plan, int node) {
    return TunedGraph::PartKey(WorkOf(plan, node), plan.plan_choice(node).config);
  }

  // Finds the best assignments of all graphs, as solutions_, and returns them as one selection.
  Selection Solve(double ns_per_byte) {
    Selection selection;
    solutions_.clear();
    for (const auto& graph : graphs_) {
      solutions_.push_back(graph->Solve(table_, ns_per_byte));
      graph->AppendTo(solutions_.back(), selection);
    }
    return selection;
  }
  // Solves and measures until an assignment has no guesses. Returns false if the time is over.
  bool Explore() {
    constexpr double kShare = 0.7;  // of the whole time; the rest is for the comparison
    std::set<std::string> seen;
    for (int number = 1;; ++number) {
      // Even if the plans before have taken all time, the first assignment is measured.
      if (!IsTimeLeft(kShare) && (number > 1 || is_stopped_)) return false;
      const Selection selection = Solve(0);
      int guesses = 0;
      result_.predicted_ns = result_.lower_bound_ns = 0;
      for (const TunedGraph::Solution& solution : solutions_) {
        guesses += solution.guesses;
        result_.predicted_ns += solution.cost_ns;
        result_.lower_bound_ns += solution.lower_bound_ns;
      }
      const bool is_new = seen.insert(ToString(selection)).second;
      if (!is_new) return true;
      auto candidate = MakeFor(selection, StrCat("tuned ", number));
      if (!candidate) return true;  // the same times would give the same plan again
      candidate->predicted = result_.predicted_ns;
      NoteRefused(*candidate->executor.plan().state()->GetLatest());
      Measure(*candidate);
      others_.push_back(std::move(candidate));
      Forget();
      if (guesses == 0) return true;
    }
  }
  // Takes back the groups of choices that make the fastest plan slower. The sum of the times of
  // nodes does not know how neighbours disturb each other, and a plan runs as a whole.
  void Refine() {
    constexpr size_t kMostGroups = 8;
    constexpr double kShare = 0.7, kGain = 0.99;
    const Candidate* fastest = nullptr;
    for (const auto& one : others_)
      if (!one->is_kept && (!fastest || one->relative < fastest->relative)) fastest = one.get();
    if (!fastest || fastest->relative >= 1) return;
    const Selection tuned = fastest->asked, usual = ChoicesOf(default_->executor.plan());
    const double relative = fastest->relative;
    std::vector<std::vector<std::string>> groups = ChangedGroups(tuned, usual);
    if (groups.size() < 2) return;
    if (groups.size() > kMostGroups) groups.resize(kMostGroups);
    std::vector<std::string> taken_back;
    int number = 0;
    for (const std::vector<std::string>& group : groups) {
      if (!IsTimeLeft(kShare)) return;
      const auto candidate = MakeFor(Without(tuned, usual, group), "");
      if (!candidate) continue;
      Measure(*candidate);
      if (candidate->relative > kGain * relative) continue;
      ++number;
      taken_back.insert(taken_back.end(), group.begin(), group.end());
    }
    if (number == 0) return;
    auto candidate = MakeFor(Without(tuned, usual, taken_back),
                             StrCat(fastest->name, " without ", number, " groups"));
    if (!candidate) return;
    Measure(*candidate);
    others_.push_back(std::move(candidate));
  }
  // Returns the names of the nodes that differ, in groups of neighbours: the group that takes the
  // longest time in the default plan first.
  std::vector<std::vector<std::string>> ChangedGroups(const Selection& tuned,
                                                      const Selection& usual) const {
    const TunedGraph& graph = *graphs_[0];
    const GraphView& view = graph.plan().plan_view();
    IndexedVector<int> group_of(Index(view.num_nodes()), -1);
    struct Group {
      double ns = 0;
      std::vector<std::string> names;
    };
    std::vector<Group> groups;
    NameTable<std::string> before, after;
    for (const auto& [selection, ways] : {std::pair(&usual, &before), std::pair(&tuned, &after)})
      for (const Selection::Node& one : selection->nodes)
        (*ways)[one.node] = StrCat(one.backend, one.layouts, one.variant, one.device);
    const auto is_changed = [&](int node) {
      const std::string* const old = before.Find(graph.name(node));
      const std::string* const now = after.Find(graph.name(node));
      return old && now ? *old != *now : old != now;
    };
    for (const int first : view.order()) {
      if (group_of[first] >= 0 || !is_changed(first)) continue;
      const int number = static_cast<int>(groups.size());
      Group& group = groups.emplace_back();
      std::vector<int> queue = {first};
      group_of[first] = number;
      while (!queue.empty()) {
        const int node = queue.back();
        queue.pop_back();
        group.names.push_back(graph.name(node));
        group.ns += table_.Median(graph.choices(node)[graph.default_choice(node)].key, 0);
        const auto add = [&](int other) {
          if (other < 0 || group_of[other] >= 0 || !is_changed(other)) return;
          group_of[other] = number;
          queue.push_back(other);
        };
        for (const int value : view.inputs(node))
          if (value >= 0) add(view.producer(value));
        for (const int value : view.outputs(node))
          if (value >= 0)
            for (const int reader : view.consumers(value)) add(reader);
      }
    }
    StableSort(groups, [](const Group& a, const Group& b) { return a.ns > b.ns; });
    std::vector<std::vector<std::string>> names;
    for (Group& group : groups) names.push_back(std::move(group.names));
    return names;
  }
  // Returns the tuned selection with the usual choices for these nodes.
  static Selection Without(const Selection& tuned, const Selection& usual,
                           const std::vector<std::string>& names) {
    const std::set<std::string> taken_back(names.begin(), names.end());
    Selection both;
    for (const Selection::Node& node : tuned.nodes)
      if (!taken_back.contains(node.node)) both.nodes.push_back(node);
    for (const Selection::Node& node : usual.nodes)
      if (taken_back.contains(node.node)) both.nodes.push_back(node);
    return both;
  }
  bool SeeksMemory() const {
    return options_.objective == TuneObjective::kMemory || options_.most_bytes > 0 ||
           options_.pareto;
  }
  // Measures the plans that are best if a byte counts as more and more time.
  void ExploreMemory() {
    std::set<std::string> seen;
    for (const double ns_per_byte : {1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e2}) {
      if (!IsTimeLeft(1)) return;
      const Selection selection = Solve(ns_per_byte);
      if (!seen.insert(ToString(selection)).second) continue;
      auto candidate = MakeFor(selection, StrCat("smaller ", seen.size()));
      if (!candidate) continue;
      candidate->is_kept = true;
      Measure(*candidate);
      others_.push_back(std::move(candidate));
    }
  }
  // Notes the choices that the plan could not have.
  void NoteRefused(const Specialization& plan) {
    ForEachPlanned(plan, {}, [&](const Specialization& planned, const std::string& prefix) {
      const int number = GraphNumber(prefix);
      if (number < 0) return;
      const TunedGraph& graph = *graphs_[Index(number)];
      const TunedGraph::Solution& solution = solutions_[Index(number)];
      for (int node = 0; node < planned.plan_view().num_nodes(); ++node) {
        const TunedGraph::State& state = solution.states[node];
        if (state.absorbed_by >= 0) continue;
        const TunedGraph::Choice& asked = graph.choices(node)[state.choice];
        if (asked.way != WayOf(planned, node)) table_.AddRefused(asked.key);
      }
      for (const auto& [node, pair] : solution.pairs)
        if (planned.plan_choice(node).computed_by < 0) table_.AddPair(pair, false);
    });
  }
  // Keeps the executors of the backends' plans and of the fastest others, since each has its own
  // weights.
  void Forget() {
    constexpr size_t kKept = 3;
    std::vector<size_t> tuned;
    for (size_t i = 0; i < others_.size(); ++i)
      if (!others_[i]->is_kept) tuned.push_back(i);
    if (tuned.size() <= kKept) return;
    // The latest has the best prediction.
    const auto slowest = std::max_element(tuned.begin(), tuned.end() - 1, [&](size_t a, size_t b) {
      return others_[a]->relative < others_[b]->relative;
    });
    others_.erase(others_.begin() + static_cast<ptrdiff_t>(*slowest));
  }

  // Runs the plans in turns.
  void Compare() {
    stage_ = "comparing";
    std::vector<Candidate*> all = {default_.get()};
    double fastest = 1;
    for (const auto& one : others_) fastest = (std::min)(fastest, one->relative);
    // A plan that was much slower when its nodes were timed would only take time.
    constexpr double kHopeless = 1.3;
    for (const auto& one : others_)
      if (one->relative < kHopeless * fastest || SeeksMemory()) all.push_back(one.get());
    std::vector<TimedCall> calls;
    // The weights of all plans together may not fit into the caches that hold those of one. A run
    // before each timed one brings them back. Short runs, of which a sample has many, need none,
    // and long runs read more than caches hold.
    constexpr double kShortNs = 100'000;
    for (Candidate* one : all) {
      TimedCall& call = calls.emplace_back();
      call.run = [one] { one->Run(); };
      if (first_base_ > kShortNs && first_base_ < kLongNs) call.prepare = [one] { one->Run(); };
    }
    TimingOptions timing;
    timing.seconds = (std::max)(0.2 * options_.seconds, options_.seconds - Seconds());
    timing.seconds = (std::min)(timing.seconds, 0.3 * options_.seconds);
    if (is_stopped_) timing.seconds = 0.01 * options_.seconds;
    timing.seed = options_.seed;
    timing.precision = 0.003;
    std::vector<CallTimes> times = TimeInterleaved(calls, timing, options_.clock);
    std::vector<TuneResult::Plan*> rows;
    for (size_t i = 0; i < all.size(); ++i) {
      TuneResult::Plan& plan = result_.plans.emplace_back();
      plan.name = all[i]->name;
      plan.selection = i == 0 ? ChoicesOf(all[i]->executor.plan()) : all[i]->asked;
      plan.times = std::move(times[i]);
      for (double& ns : plan.times.ns) ns /= options_.executors;
      Summarize(plan.times);
      plan.bytes = BytesOf(all[i]->executor.plan());
      plan.predicted = all[i]->predicted;
    }
    for (size_t i = 1; i < all.size(); ++i) {
      TuneResult::Plan& plan = result_.plans[i];
      plan.speedup = result_.plans[0].times.median / plan.times.median;
      plan.p = MannWhitneyTest(result_.plans[0].times.ns, plan.times.ns).p;
      rows.push_back(&plan);
    }
    CorrectForComparisons(rows);
    compared_ = std::move(all);
  }
  static int64_t BytesOf(const Plan& plan) {
    int64_t bytes = plan.memory().arena_bytes;
    const auto latest = plan.state()->GetLatest();
    for (const Graph::Constant& constant : latest->view().graph().constants())
      if (latest->plan_view().FindValue(constant.name) < 0)
        bytes +=
            LayoutBytes(constant.value.layout(), constant.value.shape(), constant.value.dtype());
    return bytes;
  }
  // Reads the energy of the plans, in turns.
  void CompareEnergy() {
    constexpr int kRounds = 7;
    constexpr double kSeconds = 0.1;  // between two readings
    std::vector<std::vector<double>> joules(compared_.size());
    for (int round = 0; round < kRounds; ++round)
      for (size_t i = 0; i < compared_.size(); ++i) {
        const double before = options_.energy->Joules(), begin = Seconds();
        int runs = 0;
        do {
          compared_[i]->Run();
          ++runs;
        } while (Seconds() - begin < kSeconds);
        joules[i].push_back((options_.energy->Joules() - before) / (runs * options_.executors));
      }
    std::vector<TuneResult::Plan*> rows;
    for (size_t i = 0; i < compared_.size(); ++i) {
      result_.plans[i].joules = MedianOf(joules[i]);
      if (i == 0 || options_.objective != TuneObjective::kEnergy) continue;
      result_.plans[i].p = MannWhitneyTest(joules[0], joules[i]).p;
      rows.push_back(&result_.plans[i]);
    }
    CorrectForComparisons(rows);
  }
  // Chooses among the plans that have run in turns.
  void Choose() {
    const std::vector<TuneResult::Plan>& plans = result_.plans;
    const auto fits = [&](const TuneResult::Plan& plan) {
      return options_.most_bytes == 0 || plan.bytes <= options_.most_bytes;
    };
    const auto smallest = std::ranges::min_element(plans, {}, &TuneResult::Plan::bytes);
    if (!fits(*smallest))
      Throw(ErrorCode::kOutOfMemory, "no plan that tuning has found takes at most ",
            options_.most_bytes, " bytes; the smallest takes ", smallest->bytes);
    size_t best = 0;
    while (!fits(plans[best])) ++best;
    // A plan that does not fit is no reason to want a significant difference.
    const bool must_differ = best == 0;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (!fits(plans[i])) continue;
      const TuneResult::Plan& plan = plans[i];
      const TuneResult::Plan& so_far = plans[best];
      const bool is_significant = !must_differ || plan.p < options_.significance;
      const bool is_faster = is_significant && plan.times.median < so_far.times.median;
      bool is_better = is_faster;
      if (options_.objective == TuneObjective::kMemory)
        is_better = plan.bytes < so_far.bytes || (plan.bytes == so_far.bytes && is_faster);
      if (options_.objective == TuneObjective::kEnergy)
        is_better = is_significant && plan.joules < so_far.joules;
      if (is_better) best = i;
    }
    result_.best = best;
    result_.selection = plans[best].selection;
    best_ = compared_[best];
  }

  void Report() {
    result_.configurations = static_cast<int>(table_.times().size());
    ForEachPlanned(*best_->executor.plan().state()->GetLatest(), {},
                   [&](const Specialization& plan, const std::string& prefix) {
                     if (const int number = GraphNumber(prefix); number >= 0)
                       Describe(plan, *graphs_[Index(number)]);
                   });
  }
  void Describe(const Specialization& plan, const TunedGraph& graph) {
    for (int node = 0; node < plan.plan_view().num_nodes(); ++node) {
      TuneResult::Node& out = result_.nodes.emplace_back();
      out.name = graph.prefix() + graph.name(node);
      out.work = graph.work(node);
      const std::string chosen = WayOf(plan, node);
      const bool is_absorbed = plan.plan_choice(node).computed_by >= 0;
      const bool was_absorbed = graph.plan().plan_choice(node).computed_by >= 0;
      out.is_default = is_absorbed == was_absorbed &&
                       chosen == graph.choices(node)[graph.default_choice(node)].way;
      for (const TunedGraph::Choice& choice : graph.choices(node))
        if (const CallTimes* const times = table_.Find(choice.key))
          out.ways.push_back({choice.way, times->median, times->low, times->high});
      StableSort(out.ways, [](const auto& a, const auto& b) { return a.median < b.median; });
      for (size_t i = 0; i < out.ways.size() && !is_absorbed; ++i)
        if (out.ways[i].way == chosen) out.chosen = static_cast<int>(i);
    }
  }

  // Runs of this time or more need no run before them that brings their weights into the caches.
  static constexpr double kLongNs = 2e7;

  const TuneOptions& options_;
  TimingClock machine_clock_;
  TimingClock& clock_;
  const int64_t begin_;
  const char* stage_ = "measuring";
  bool is_stopped_ = false;
  std::vector<NamedTensor> inputs_;
  std::unique_ptr<Candidate> default_;
  Graph graph_;
  std::vector<std::unique_ptr<TunedGraph>> graphs_;  // the graph first, then its bodies
  std::vector<TunedGraph::Solution> solutions_;      // of the latest assignment, by graph
  std::vector<std::unique_ptr<Candidate>> others_;
  std::vector<Candidate*> compared_;  // by plan of the result
  Candidate* best_ = nullptr;
  double first_base_ = 0;  // ns of the default plan in its first measurement
  CostTable table_;
  TuneResult result_;
};

}  // namespace detail

OPKIT_COLD OPKIT_INLINE TuneResult Tune(const Graph& graph, const TuneOptions& options) {
  if (!(options.seconds > 0) || !(options.significance > 0 && options.significance <= 1))
    Throw(ErrorCode::kInvalidArgument,
          "Tune needs a time above 0 and a significance in (0, 1], "
          "found ",
          options.seconds, " s and ", options.significance);
  if (options.executors < 1 || options.most_bytes < 0)
    Throw(ErrorCode::kInvalidArgument, "Tune needs one executor or more and a bound of 0 bytes or ",
          "more, found ", options.executors, " and ", options.most_bytes);
  if (options.objective == TuneObjective::kEnergy && !options.energy)
    Throw(ErrorCode::kInvalidArgument,
          "Tune for energy needs TuneOptions::energy, such as OpenCpuEnergy()");
  return detail::Tuner(graph, options).Tune();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_TUNE_IMPL_TUNE_IPP_
