// Definitions of TunedGraph.
#ifndef OPKIT_GRAPH_TUNE_IMPL_TUNED_GRAPH_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_TUNED_GRAPH_IPP_

#include <algorithm>
#include <limits>

#include "opkit/graph/plan/fused_graph.hpp"
#include "opkit/graph/tune/node_times.hpp"
#include "opkit/graph/tune/tuned_graph.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/profile/mann_whitney.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_INLINE TunedGraph::TunedGraph(const Specialization& plan, std::string prefix,
                                               const KernelSelector::Options& options)
    : plan_(plan),
      view_(plan.plan_view()),
      prefix_(std::move(prefix)),
      types_(plan.plan_types()),
      names_(SelectionNames(view_.graph())) {
  for (int value = 0; value < view_.num_values(); ++value) types_[value].layout = Layout();
  selector_ = std::make_unique<KernelSelector>(view_, types_, options);
  selector_->FindPossibleLayouts();
  FindChoices(options);
}

OPKIT_COLD OPKIT_INLINE void TunedGraph::FindChoices(const KernelSelector::Options& options) {
  for (int node = 0; node < view_.num_nodes(); ++node) {
    const OperatorDef& def = view_.graph().node(node);
    work_.push_back(WorkKey(def, types_.Of(view_.inputs(node)), types_.Of(view_.outputs(node))));
    std::vector<Choice>& choices = choices_.emplace_back();
    const auto add = [&](NodeRating::Rated rated) {
      Choice choice;
      choice.way = WayKey(*rated.candidate.kernel, rated.device, rated.candidate.config);
      choice.key = StrCat(work_[node], " by ", choice.way);
      choice.rated = std::move(rated);
      const auto same = std::ranges::find(choices, choice.key, &Choice::key);
      const auto at = static_cast<size_t>(same - choices.begin());
      if (same == choices.end()) choices.push_back(std::move(choice));
      return at;
    };
    const NodeChoice& chosen = plan_.plan_choice(node);
    NodeRating::Rated first;
    first.candidate.kernel = chosen.kernel;
    first.candidate.config = chosen.config;
    first.candidate.backend = chosen.kernel->backend;
    first.candidate.number = chosen.config_number;
    first.device = chosen.device;
    default_.push_back(add(std::move(first)));
    if (options.forced && options.forced->Find(prefix_ + names_[node])) continue;
    for (NodeRating::Rated& rated : selector_->AllCandidates(node))
      if (rated.candidate.dropped.empty() && rated.candidate.kernel) add(std::move(rated));
  }
}

OPKIT_INLINE uint64_t TunedGraph::FlopsOf(int node) const {
  const OperatorDef& def = view_.graph().node(node);
  return OpRegistry::Global()
      .GetSchema(def.type())
      .Cost(def, types_.Of(view_.inputs(node)), types_.Of(view_.outputs(node)))
      .flops;
}

OPKIT_COLD OPKIT_INLINE int TunedGraph::NextOf(int node) const {
  const auto outputs = view_.outputs(node);
  if (outputs.size() != 1 || outputs[0] < 0) return -1;
  const int value = outputs[0];
  if (view_.IsOutput(value) || view_.IsRewritten(value) || view_.consumers(value).size() != 1)
    return -1;
  const int next = view_.consumers(value)[0];
  const bool is_read_once = std::ranges::count(view_.inputs(next), value) == 1;
  return view_.outputs(next).size() == 1 && is_read_once ? next : -1;
}
OPKIT_COLD OPKIT_INLINE void TunedGraph::ForEachKey(
    FunctionRef<void(const std::string& key, bool is_pair)> visit) const {
  for (int node = 0; node < view_.num_nodes(); ++node)
    for (const Choice& choice : choices_[node]) {
      visit(choice.key, false);
      const int next = choice.rated.candidate.kernel->fuse ? NextOf(node) : -1;
      for (size_t i = 0; next >= 0 && i < choices_[next].size(); ++i)
        visit(PairKey(choice.key, PartKey(work_[next], choices_[next][i].rated.candidate.config)),
              true);
    }
}

// Builds the assignment problem of a TunedGraph.
class TunedGraph::Builder {
 public:
  Builder(const TunedGraph& graph, const CostTable& table, double ns_per_byte)
      : graph_(graph), view_(graph.view_), table_(table), ns_per_byte_(ns_per_byte) {
    LearnRatios();
    states_.resize(Index(view_.num_nodes()));
    problem_.costs.resize(states_.size());
    for (const int node : view_.order()) AddStates(node);
    for (int value = 0; value < view_.num_values(); ++value)
      if (!view_.IsConstant(value)) AddValue(value);
  }

  Solution Solve() {
    const Assignment found = SolveAssignment(problem_);
    Solution solution;
    solution.cost_ns = found.cost;
    solution.lower_bound_ns = found.lower_bound;
    for (int node = 0; node < view_.num_nodes(); ++node)
      solution.states.push_back(states_[node][Index(found.choices[Index(node)])]);
    FindGuesses(solution);
    return solution;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // An input of a node that reads a value.
  struct Read {
    int node;
    int input;
  };

  const Choice& ChoiceOf(int node, const State& state) const {
    return graph_.choices_[node][state.choice];
  }
  static const KernelConfig& ConfigOf(const Choice& choice) {
    return choice.rated.candidate.config;
  }
  NodeDevices DevicesOf(int node, const Choice& choice) const {
    return NodeDevices(OperatorDef(view_.graph().node(node)).Device(choice.rated.device));
  }

  // Learns how the times of an operator's kernels compare: the least ratio to the default's time
  // that any node has.
  void LearnRatios() {
    for (int node = 0; node < view_.num_nodes(); ++node) {
      const double base = table_.Median(DefaultOf(node).key, 0);
      if (base <= 0) continue;
      double& smallest = smallest_.try_emplace(OpOf(node), base).first->second;
      smallest = (std::min)(smallest, base);
      for (const Choice& choice : graph_.choices_[node])
        if (const double ns = table_.Median(choice.key, 0); ns > 0) {
          double& ratio = ratios_.try_emplace(KindOf(node, choice), ns / base).first->second;
          ratio = (std::min)(ratio, ns / base);
        }
    }
  }
  const std::string& OpOf(int node) const { return view_.graph().node(node).type(); }
  std::string KindOf(int node, const Choice& choice) const {
    return StrCat(OpOf(node), " by ", choice.rated.candidate.backend, " ",
                  ConfigOf(choice).variant);
  }
  const Choice& DefaultOf(int node) const { return graph_.choices_[node][graph_.default_[node]]; }

  // Returns a favourable time of a configuration that was not measured, so that it is tried. Plain
  // kernels may be a thousand times slower: they are tried on small nodes first, and never where
  // they would take about 10 ms.
  double Guess(int node, const Choice& choice) const {
    constexpr double kHope = 0.7, kFirstHope = 0.5, kNsPerByte = 0.1, kSmallNs = 20'000;
    constexpr uint64_t kMostPlainFlops = 10'000'000;
    double base = table_.Median(DefaultOf(node).key, -1);
    if (base < 0) {
      base = 100;
      for (const auto values : {view_.inputs(node), view_.outputs(node)})
        for (const int value : values) {
          if (value < 0 || view_.IsConstant(value)) continue;
          const TensorInfo& info = graph_.types_[value];
          if (info.shape.is_known() && info.dtype != DType::kUndefined)
            base += kNsPerByte *
                    static_cast<double>(LayoutBytes(Layout(), info.shape.ToShape(), info.dtype));
        }
    }
    if (const auto ratio = ratios_.find(KindOf(node, choice)); ratio != ratios_.end())
      return base * kHope * ratio->second;
    if (choice.rated.candidate.backend == kReferenceBackend && base > kSmallNs) {
      if (graph_.FlopsOf(node) > kMostPlainFlops) return kNever;
      const auto smallest = smallest_.find(OpOf(node));
      if (smallest == smallest_.end() || base > smallest->second) return kNever;
    }
    return base * kFirstHope;
  }
  // Returns the time of a node that its own kernel computes alone, or a guess.
  double CostOf(int node, size_t index) const {
    const Choice& choice = graph_.choices_[node][index];
    const bool is_default = index == graph_.default_[node];
    if (!is_default && table_.IsRefused(choice.key)) return kNever;
    const CallTimes* const times = table_.Find(choice.key);
    if (!times) return (std::min)(CostWithNext(node, choice), Guess(node, choice));
    const CallTimes* const base = table_.Find(DefaultOf(node).key);
    if (is_default || !base) return times->median;
    constexpr double kPreferDefault = 1.001;
    return kPreferDefault *
           (IsFaster(*times, *base) ? times->median : (std::max)(times->median, base->median));
  }
  // Returns the bytes of a node's outputs that take no input's memory, scratch and constants in
  // another layout.
  double BytesOf(int node, size_t index) const {
    const KernelConfig& config = ConfigOf(graph_.choices_[node][index]);
    auto sum = static_cast<double>(config.scratch_bytes);
    const auto add = [&](int value, const Layout& layout) {
      const TensorInfo& info = graph_.types_[value];
      if (info.shape.is_known() && info.dtype != DType::kUndefined)
        sum += static_cast<double>(LayoutBytes(layout, info.shape.ToShape(), info.dtype));
    };
    const auto inputs = view_.inputs(node), outputs = view_.outputs(node);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] >= 0 && view_.IsConstant(inputs[i]) && !config.input_layout(i).is_standard())
        add(inputs[i], config.input_layout(i));
    for (size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o] >= 0 && std::ranges::none_of(config.inplace, [&](const auto& pair) {
            return Index(pair.second) == o;
          }))
        add(outputs[o], config.output_layout(o));
    return sum;
  }
  static bool IsFaster(const CallTimes& times, const CallTimes& base) {
    constexpr double kSignificance = 0.01;
    if (times.ns.empty() || base.ns.empty()) return times.high < base.low;
    return times.median < base.median && MannWhitneyTest(times.ns, base.ns).p < kSignificance;
  }
  // Returns the least time of the kernel when it computes the next node too; infinity if none is
  // known.
  double CostWithNext(int node, const Choice& choice) const {
    const int next = graph_.NextOf(node);
    double least = kNever;
    for (size_t i = 0; next >= 0 && i < graph_.choices_[next].size(); ++i)
      least = (std::min)(least, table_.Median(PairOf(choice.key, next, i), kNever));
    return least;
  }
  std::string PairOf(const std::string& left, int next, size_t index) const {
    return PairKey(left, PartKey(graph_.work_[next], ConfigOf(graph_.choices_[next][index])));
  }
  void AddStates(int node) {
    std::vector<State>& states = states_[node];
    std::vector<double>& costs = problem_.costs[Index(node)];
    for (size_t i = 0; i < graph_.choices_[node].size(); ++i) {
      const double cost = CostOf(node, i);
      if (cost == kNever) continue;
      states.push_back({i, -1});
      costs.push_back(cost + (ns_per_byte_ > 0 ? ns_per_byte_ * BytesOf(node, i) : 0));
    }
    const auto inputs = view_.inputs(node);
    for (int input = 0; input < static_cast<int>(inputs.size()); ++input) {
      const int value = inputs[Index(input)];
      const int before = value < 0 ? -1 : view_.producer(value);
      if (before < 0 || graph_.NextOf(before) != node || !MayFuse(before)) continue;
      std::vector<std::string> seen;
      for (size_t i = 0; i < graph_.choices_[node].size(); ++i) {
        std::string part = PartKey(graph_.work_[node], ConfigOf(graph_.choices_[node][i]));
        if (std::ranges::count(seen, part) > 0) continue;
        seen.push_back(std::move(part));
        states.push_back({i, input});
        costs.push_back(0);
      }
    }
  }
  // True if a kernel of the node, or of a node before it, may compute the next node too.
  bool MayFuse(int node) const {
    return std::ranges::any_of(graph_.choices_[node],
                               [](const Choice& choice) {
                                 return static_cast<bool>(choice.rated.candidate.kernel->fuse);
                               }) ||
           std::ranges::any_of(states_[node],
                               [](const State& state) { return state.absorbed_by >= 0; });
  }

  // Adds the costs of bringing a value to its readers.
  void AddValue(int value) {
    std::vector<Read> reads;
    for (const int node : view_.consumers(value))
      for (int i = 0; i < static_cast<int>(view_.inputs(node).size()); ++i)
        if (view_.inputs(node)[Index(i)] == value) reads.push_back({node, i});
    const int producer = view_.producer(value);
    if (producer >= 0 && reads.size() == 1 && !view_.IsOutput(value))
      return AddOnlyRead(producer, value, reads[0]);
    // Each place in which a reader or the caller wants the value becomes a node with two choices:
    // not made, made. A conversion is then paid once, however many readers it has.
    std::vector<ValuePlace> places;
    const auto place_at = [&](const ValuePlace& place) {
      size_t i = 0;
      while (i < places.size() && !places[i].Is(place.layout, place.device)) ++i;
      if (i == places.size()) places.push_back(place);
      return i;
    };
    std::vector<std::vector<size_t>> wanted;  // by read and state: an index in `places`
    for (const Read& read : reads) {
      std::vector<size_t>& by_state = wanted.emplace_back();
      for (const State& state : states_[read.node])
        by_state.push_back(place_at(WantedAt(value, read, state)));
    }
    const ValuePlace outside{Layout(), graph_.types_[value].device};
    const size_t returned = view_.IsOutput(value) ? place_at(outside) : places.size();
    for (size_t p = 0; p < places.size(); ++p) {
      const int made = static_cast<int>(problem_.costs.size());
      std::vector<double>& costs = problem_.costs.emplace_back();
      costs = {p == returned ? kNever : 0,
               producer >= 0 ? 0 : ConversionCost(value, outside, places[p])};
      if (producer >= 0) {
        AssignmentProblem::Edge edge{producer, made, {}};
        for (const State& state : states_[producer]) {
          edge.costs.push_back(0);
          edge.costs.push_back(ConversionCost(value, MadeAt(value, producer, state), places[p]));
        }
        problem_.edges.push_back(std::move(edge));
      }
      for (size_t r = 0; r < reads.size(); ++r) {
        AssignmentProblem::Edge edge{made, reads[r].node, {}};
        for (const bool is_made : {false, true})
          for (const size_t place : wanted[r])
            edge.costs.push_back(!is_made && place == p ? kNever : 0);
        problem_.edges.push_back(std::move(edge));
      }
    }
  }
  void AddOnlyRead(int producer, int value, const Read& read) {
    AssignmentProblem::Edge edge{producer, read.node, {}};
    for (const State& from : states_[producer]) {
      const ValuePlace made = MadeAt(value, producer, from);
      for (const State& to : states_[read.node]) {
        const bool is_absorbed = to.absorbed_by == read.input;
        edge.costs.push_back(is_absorbed ? AbsorbCost(producer, from, read.node, to)
                             : WouldFuse(producer, from, read.node, to)
                                 ? kNever
                                 : ConversionCost(value, made, WantedAt(value, read, to)));
      }
    }
    problem_.edges.push_back(std::move(edge));
  }
  // Returns what the kernel of `from` takes longer for computing the next node too.
  double AbsorbCost(int node, const State& from, int next, const State& to) const {
    const Choice& choice = ChoiceOf(node, from);
    const Choice& absorbed = ChoiceOf(next, to);
    const bool is_head = from.absorbed_by < 0;
    if (is_head && !choice.rated.candidate.kernel->fuse) return kNever;
    if (choice.rated.device != absorbed.rated.device ||
        ConfigOf(choice).output_layout(0) != ConfigOf(absorbed).input_layout(Index(to.absorbed_by)))
      return kNever;
    const std::string pair = PairOf(
        is_head ? choice.key : PartKey(graph_.work_[node], ConfigOf(choice)), next, to.choice);
    if (table_.IsUnfused(pair)) return kNever;
    if (!is_head) return 0;
    const CallTimes* const times = table_.Find(pair);
    return times ? (std::max)(0.0, times->median - CostOf(node, from.choice)) : 0;
  }
  // True if a plan computes the two nodes together although `to` says that each is alone.
  bool WouldFuse(int node, const State& from, int next, const State& to) const {
    const Choice& choice = ChoiceOf(node, from);
    return from.absorbed_by < 0 && choice.rated.candidate.kernel->fuse &&
           choice.rated.candidate.backend == ChoiceOf(next, to).rated.candidate.backend &&
           table_.IsFused(PairOf(choice.key, next, to.choice));
  }
  ValuePlace MadeAt(int value, int node, const State& state) const {
    const auto outputs = view_.outputs(node);
    const auto o = static_cast<size_t>(std::ranges::find(outputs, value) - outputs.begin());
    const Choice& choice = ChoiceOf(node, state);
    return {ConfigOf(choice).output_layout(o), DevicesOf(node, choice).output(o)};
  }
  ValuePlace WantedAt(int value, const Read& read, const State& state) const {
    const Choice& choice = ChoiceOf(read.node, state);
    const std::optional<Device> device = DevicesOf(read.node, choice).input(Index(read.input));
    return {ConfigOf(choice).input_layout(Index(read.input)),
            device ? *device : graph_.types_[value].device};
  }
  double ConversionCost(int value, const ValuePlace& from, const ValuePlace& to) const {
    if (from.Is(to.layout, to.device)) return 0;
    const TensorInfo& info = graph_.types_[value];
    if (!info.shape.is_known() || info.dtype == DType::kUndefined) return kNever;
    if (const CallTimes* const times = table_.Find(ConversionKey(info, from, to)))
      return times->median;
    const Shape shape = info.shape.ToShape();
    double ns = FindLayoutPath(from.layout, to.layout, shape, info.dtype).cost_ns;
    if (MemoryDevice(from.device) != MemoryDevice(to.device))
      ns += EstimatedCopyNs(LayoutBytes(Layout(), shape, info.dtype));
    return ns;
  }

  void FindGuesses(Solution& solution) const {
    for (int node = 0; node < view_.num_nodes(); ++node) {
      const State& state = solution.states[node];
      const Choice& choice = ChoiceOf(node, state);
      const int next = graph_.NextOf(node);
      const bool absorbs =
          next >= 0 && solution.states[next].absorbed_by >= 0 &&
          view_.inputs(next)[Index(solution.states[next].absorbed_by)] == view_.outputs(node)[0];
      if (absorbs) {
        const bool is_head = state.absorbed_by < 0;
        std::string pair =
            PairOf(is_head ? choice.key : PartKey(graph_.work_[node], ConfigOf(choice)), next,
                   solution.states[next].choice);
        solution.guesses += !table_.IsFused(pair);
        solution.pairs.emplace_back(next, std::move(pair));
      } else if (state.absorbed_by < 0) {
        solution.guesses += !table_.Find(choice.key);
      }
    }
  }

  const TunedGraph& graph_;
  const GraphView& view_;
  const CostTable& table_;
  const double ns_per_byte_;
  std::map<std::string, double> ratios_, smallest_;
  IndexedVector<std::vector<State>> states_;  // by node
  AssignmentProblem problem_;                 // its first nodes are those of the graph
};

OPKIT_COLD OPKIT_INLINE TunedGraph::Solution TunedGraph::Solve(const CostTable& table,
                                                               double ns_per_byte) const {
  return Builder(*this, table, ns_per_byte).Solve();
}

OPKIT_COLD OPKIT_INLINE void TunedGraph::AppendTo(const Solution& solution,
                                                  Selection& selection) const {
  for (const int node : view_.order()) {
    const State& state = solution.states[node];
    const Choice* choice = &choices_[node][state.choice];
    if (state.absorbed_by >= 0) {
      int head = node;  // the node whose kernel computes this one
      while (solution.states[head].absorbed_by >= 0)
        head = view_.producer(view_.inputs(head)[Index(solution.states[head].absorbed_by)]);
      const std::string& backend =
          choices_[head][solution.states[head].choice].rated.candidate.backend;
      // A kernel of the same backend in the same layouts; without one the plan chooses.
      const auto same = std::ranges::find_if(choices_[node], [&](const Choice& one) {
        return one.rated.candidate.backend == backend && one.rated.device == choice->rated.device &&
               HaveSameLayouts(one.rated.candidate.config, choice->rated.candidate.config);
      });
      if (same == choices_[node].end()) continue;
      choice = &*same;
    }
    const KernelCandidate& candidate = choice->rated.candidate;
    selection.nodes.push_back(
        SelectionEntry(prefix_ + names_[node], view_.graph().node(node).type(), *candidate.kernel,
                       choice->rated.device, candidate.config, candidate.number));
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_IMPL_TUNED_GRAPH_IPP_
