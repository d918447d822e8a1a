// ProfileOfRun's definition: matches a plan's steps with the spans of a profile.
#ifndef OPKIT_GRAPH_IMPL_RUN_PROFILE_IPP_
#define OPKIT_GRAPH_IMPL_RUN_PROFILE_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The steps of a schedule in one run of a profile.
class RecordedRun {
 public:
  RecordedRun(const Graph& graph, const Schedule& schedule)
      : graph_(graph), schedule_(schedule), spans_(Index(schedule.size())) {}

  // Matches the spans inside a run with the steps. Returns false if a step was not recorded, or if
  // the run is of another plan. Steps of equal type and name are matched in order.
  bool Find(const std::vector<const ProfileSpan*>& inside) {
    if (inside.size() != spans_.size()) return false;
    std::multimap<std::pair<uint32_t, uint32_t>, int> steps;
    for (int step = 0; step < schedule_.size(); ++step) {
      const OperatorDef& def = graph_.node(schedule_.original_of(step));
      steps.emplace(std::pair(InternName(def.type()), InternName(OperatorBase::NodeName(def))),
                    step);
    }
    for (const ProfileSpan* span : inside) {
      const auto step = steps.find({span->name, span->node});
      if (step == steps.end()) return false;
      spans_[step->second] = span;
      steps.erase(step);
    }
    return true;
  }

  RunProfile Read(const ProfileSpan& whole) const {
    RunProfile run{whole.begin, (std::max)(whole.end, whole.completed), {}, {}};
    const size_t count = spans_.size();
    IndexedVector<int> last(count, -1);  // by step: its predecessor that ended last
    IndexedVector<int64_t> ready(count, run.begin);
    for (int step = 0; step < schedule_.size(); ++step)
      for (const int entry : EntriesOf(schedule_, step)) {
        const auto target = Index(Schedule::TargetOf(entry));
        const ProfileSpan& span = *spans_[step];
        const int64_t free = Schedule::IsEarly(entry) ? span.end : EndOf(span);
        if (last[target] >= 0 && free <= ready[target]) continue;
        ready[target] = free;
        last[target] = step;
      }
    IndexedVector<int> place(count);
    const std::vector<int> order =
        SortedOrder(count, [&](int a, int b) { return spans_[a]->begin < spans_[b]->begin; });
    int at = -1;
    for (const int step : order) {
      const ProfileSpan& span = *spans_[step];
      place[step] = static_cast<int>(run.nodes.size());
      run.nodes.push_back({schedule_.original_of(step),
                           StrCat(InternedName(span.name), " (", InternedName(span.node), ")"),
                           ready[step], span.begin, EndOf(span), span.thread});
      if (at < 0 || EndOf(span) > EndOf(*spans_[at])) at = step;
    }
    for (int step = 0; step < schedule_.size(); ++step)
      for (const int entry : EntriesOf(schedule_, step)) {
        const auto target = Index(Schedule::TargetOf(entry));
        std::vector<int>& after = run.nodes[Index(place[target])].after;
        after.insert(last[target] == step ? after.begin() : after.end(), place[step]);
      }
    for (; at >= 0; at = last[at]) run.critical_path.push_back(place[at]);
    std::reverse(run.critical_path.begin(), run.critical_path.end());
    return run;
  }

 private:
  static int64_t EndOf(const ProfileSpan& span) { return (std::max)(span.end, span.completed); }

  const Graph& graph_;
  const Schedule& schedule_;
  IndexedVector<const ProfileSpan*> spans_;  // by step
};

inline bool IsRun(const ProfileSpan& span) {
  return span.kind == Invocation::Kind::kRun && !span.adopted && !span.open;
}

OPKIT_INLINE std::optional<RunProfile> FindRun(
    const Plan& plan, const Profile& profile, FunctionRef<bool(const ProfileSpan& run)> is_wanted) {
  const auto specialization = plan.state()->GetLatest();
  std::map<uint64_t, std::vector<const ProfileSpan*>> inside;  // by run: the spans of its operators
  std::vector<const ProfileSpan*> runs;
  for (const ProfileSpan& span : profile.spans)
    if (IsRun(span)) runs.push_back(&span);
  StableSort(runs, [](const ProfileSpan* a, const ProfileSpan* b) { return a->begin > b->begin; });
  for (const ProfileSpan* run : runs) inside[run->id];
  const uint32_t copy_node = InternName("CopyToDevice");
  for (const ProfileSpan& span : profile.spans) {
    const auto run = inside.find(span.parent);
    const bool is_operator = span.kind == Invocation::Kind::kOperator ||
                             span.kind == Invocation::Kind::kCustomOperator ||
                             span.kind == Invocation::Kind::kConverter ||
                             (span.kind == Invocation::Kind::kCopy && span.name == copy_node);
    if (run != inside.end() && is_operator && !span.adopted) run->second.push_back(&span);
  }
  for (const ProfileSpan* run : runs) {
    std::vector<const ProfileSpan*>& spans = inside[run->id];
    StableSort(spans,
               [](const ProfileSpan* a, const ProfileSpan* b) { return a->begin < b->begin; });
    RecordedRun recorded(specialization->view().graph(), specialization->schedule());
    if (recorded.Find(spans) && is_wanted(*run)) return recorded.Read(*run);
  }
  return {};
}
OPKIT_INLINE void ThrowNoRun(const Plan& plan, const Profile& profile) {
  Throw(ErrorCode::kNotFound, "the profile has ",
        std::count_if(profile.spans.begin(), profile.spans.end(), IsRun),
        " runs, but none that has all of the ", plan.state()->GetLatest()->view().num_nodes(),
        " nodes of this plan; record a whole run of it, from Profiler::Start to Profiler::Stop");
}

}  // namespace detail

OPKIT_INLINE RunProfile ProfileOfRun(const Plan& plan, const Profile& profile) {
  if (auto found = detail::FindRun(plan, profile, [](const ProfileSpan&) { return true; }))
    return std::move(*found);
  detail::ThrowNoRun(plan, profile);
}

OPKIT_INLINE RunReport ReportOfRun(const Plan& plan, const Profile& profile) {
  using detail::Index;
  const RunProfile run = ProfileOfRun(plan, profile);
  const auto specialization = plan.state()->GetLatest();
  const Schedule& schedule = specialization->schedule();
  // By node: its step. By step: its index in run.nodes.
  detail::IndexedVector<int> step_of(run.nodes.size()), place_of(run.nodes.size());
  for (int step = 0; step < schedule.size(); ++step) step_of[schedule.original_of(step)] = step;
  RunReport report;
  report.begin = run.begin;
  report.end = run.end;
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    const NodeTime& node = run.nodes[i];
    place_of[step_of[node.node]] = static_cast<int>(i);
    report.nodes.push_back({node.name, node.ready, node.begin, node.end, node.after, false});
  }
  for (const int place : run.critical_path) report.nodes[Index(place)].critical = true;

  const auto node_at = [&](int64_t memory_step) -> const RunReport::Node& {
    return report.nodes[Index(place_of[specialization->memory().StepOf(memory_step)])];
  };
  for (const detail::ArenaPlan& arena : specialization->memory().arenas()) {
    report.arena_bytes += arena.plan.arena_bytes;
    const size_t first = report.buffers.size();
    for (const MemoryInterval& buffer : arena.lifetimes.buffers) {
      RunReport::Buffer& made = report.buffers.emplace_back();
      const bool is_given = buffer.lower < 0;  // the buffer is live before the first step
      made.bytes = buffer.size;
      made.owner = is_given ? "" : node_at(buffer.lower).name;
      made.begin = is_given ? run.begin : node_at(buffer.lower).begin;
      made.end = buffer.upper > specialization->memory().run_order().nodes
                     ? run.end
                     : (std::max)(made.begin, node_at(buffer.upper - 1).end);
    }
    for (size_t value = 0; value < arena.values.size(); ++value) {
      const int buffer = arena.lifetimes.buffer_of[value];
      if (buffer < 0) continue;
      std::string& name = report.buffers[first + Index(buffer)].name;
      const bool is_scratch = specialization->memory().IsScratchOfStep(value);
      name += StrCat(name.empty() ? "" : " = ",
                     is_scratch ? "scratch" : specialization->memory().Name(value));
    }
  }
  return report;
}

OPKIT_INLINE std::string ToString(const RunProfile& run) {
  int64_t work = 0, path = 0, waits = 0;
  for (const NodeTime& node : run.nodes) work += node.end - node.begin;
  const auto us = [](int64_t ns) { return detail::Microseconds(static_cast<double>(ns)); };
  std::vector<std::vector<std::string>> lines{{"critical path", "ready us", "wait us", "run us"}};
  for (const int place : run.critical_path) {
    const NodeTime& node = run.nodes[detail::Index(place)];
    path += node.end - node.begin;
    waits += node.begin - node.ready;
    lines.push_back({node.name, us(node.ready - run.begin), us(node.begin - node.ready),
                     us(node.end - node.begin)});
  }
  const auto nodes = [](size_t n) { return StrCat(n, n == 1 ? " node, " : " nodes, "); };
  return StrCat("run of ", us(run.end - run.begin), " us: ", nodes(run.nodes.size()), us(work),
                " us; critical path of ", nodes(run.critical_path.size()), us(path), " us, and ",
                us(waits), " us of waits\n") +
         detail::AlignColumns(lines, 1);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_RUN_PROFILE_IPP_
