// Definitions of RecordedPart and RecordedRuns.
#ifndef OPKIT_GRAPH_PLAN_IMPL_RECORDED_RUNS_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_RECORDED_RUNS_IPP_

#include "opkit/graph/plan/recorded_runs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Fills in a RecordedPart. A function returns the reason why the steps cannot be recorded, or an
// empty text.
class RecordedPartFinder {
 public:
  RecordedPartFinder(const Specialization& plan, const BoundNodes& nodes)
      : plan_(plan), nodes_(nodes), recorded_(Index(plan.schedule().size()), 0) {}

  RecordedPart Find() {
    FindSteps();
    if (part_.steps.empty()) return std::move(part_);
    part_.why_not = CheckAll();
    if (!part_.why_not.empty()) return std::move(part_);
    FindWaits();
    part_.record = FindRecording(part_.device.type);
    return std::move(part_);
  }

 private:
  const GraphView& view() const { return plan_.view(); }
  int NodeOf(int step) const { return plan_.schedule().original_of(step); }
  OperatorBase& OpOf(int step) const { return nodes_.op(NodeOf(step)); }
  std::string Name(int step) const { return ToString(view().graph().node(NodeOf(step))); }
  std::string ValueName(int value) const { return StrCat("'", view().name(value), "'"); }

  void FindSteps() {
    for (int step = 0; step < plan_.schedule().size(); ++step) {
      if (!plan_.IsAsynchronous(NodeOf(step)) || !FindRecording(OpOf(step).device().type)) continue;
      part_.steps.push_back(step);
      recorded_[step] = 1;
      part_.streams = (std::max)(part_.streams, plan_.stream(NodeOf(step)) + 1);
    }
    if (!part_.steps.empty()) part_.device = OpOf(part_.steps[0]).device();
  }
  std::string CheckAll() {
    for (const int step : part_.steps)
      if (std::string why = CheckStep(step); !why.empty()) return why;
    for (int value = 0; value < view().num_values(); ++value)
      if (std::string why = CheckValue(value); !why.empty()) return why;
    return JoinSteps();
  }
  std::string CheckStep(int step) const {
    const OperatorBase& op = OpOf(step);
    if (op.device() != part_.device)
      return StrCat("steps run on ", ToString(part_.device), " and on ", ToString(op.device()));
    if (dynamic_cast<const RunsBodies*>(&op)) return StrCat(Name(step), " runs a graph");
    const OpSchema* schema = OpRegistry::Global().FindSchema(op.type());
    if (!schema || schema->is_stateful() || schema->runs_may_differ())
      return StrCat(Name(step), " may do something else in each run");
    if (!op.SupportsRecording()) return StrCat(Name(step), " does not support it");
    return {};
  }
  bool IsRead(int value, bool by_recorded) const {
    for (const int node : view().consumers(value))
      if (recorded_[plan_.schedule().node_of(node)] == static_cast<char>(by_recorded)) return true;
    return false;
  }
  // Looks at a value that recorded steps read or make.
  std::string CheckValue(int value) {
    const int producer = view().producer(value);
    const bool made = producer >= 0 && recorded_[plan_.schedule().node_of(producer)] != 0;
    if (!made && !IsRead(value, true)) return {};
    const TensorInfo& info = plan_.types()[value];
    if (view().constant(value)) return {};
    if (MemoryDevice(info.device) != MemoryDevice(part_.device))
      return StrCat("a step on ", ToString(part_.device), made ? " makes " : " reads ",
                    ValueName(value), " in memory of ", ToString(info.device));
    if (info.dtype == DType::kUndefined || IsObject(info.dtype) || !info.shape.is_known())
      return StrCat("the type of ", ValueName(value), " is known only after a run");
    if (plan_.IsRewritten(value)) return StrCat("a step rewrites ", ValueName(value));
    if (plan_.memory().IsDonated(value) || IsDonatedInput(value))
      return StrCat(ValueName(value), " lies in a donated input");
    if (made && IsRead(value, false)) part_.handed_over.push_back(value);
    if (producer < 0 || (made && view().IsOutput(value)))
      part_.outer.push_back({value, made});
    else if (!plan_.memory().IsPlanned(value))
      return StrCat(ValueName(value), " has no planned memory");
    return {};
  }
  bool IsDonatedInput(int value) const {
    for (const ArenaPlan& arena : plan_.memory().arenas())
      for (const ArenaPlan::Donated& donated : arena.donated)
        if (donated.input == value) return true;
    return false;
  }
  // Calls visit(from, to) for each edge of the graph between two steps.
  template <class Visit>
  void ForEachEdge(Visit visit) const {
    for (int from = 0; from < plan_.schedule().size(); ++from)
      for (const int entry : EntriesOf(plan_.schedule(), from))
        if (!plan_.IsOrderOnly(from, entry)) visit(from, Schedule::TargetOf(entry), entry);
  }
  // Makes the schedule of the host's steps and of the recorded ones, as one node.
  std::string JoinSteps() {
    const int steps = plan_.schedule().size();
    IndexedVector<char> is_after(Index(steps), 0);  // edges lead from lower steps to higher ones
    int between = -1;
    ForEachEdge([&](int from, int to, int) {
      if (recorded_[from] || is_after[from]) is_after[to] = 1;
      if (recorded_[to] && !recorded_[from] && is_after[from] && between < 0) between = from;
    });
    if (between >= 0)
      return StrCat(Name(between), " runs on the host between steps on ", ToString(part_.device));
    IndexedVector<int> node_of(Index(steps), -1);
    const auto add_host_steps = [&](bool after) {
      for (int step = 0; step < steps; ++step)
        if (!recorded_[step] && (is_after[step] != 0) == after) {
          node_of[step] = static_cast<int>(part_.node_steps.size());
          part_.node_steps.push_back(step);
        }
    };
    add_host_steps(false);
    for (const int step : part_.steps) node_of[step] = static_cast<int>(part_.node_steps.size());
    part_.node_steps.push_back(RecordedPart::kRecorded);
    add_host_steps(true);
    std::vector<ScheduleEdge> edges;
    ForEachEdge([&](int from, int to, int entry) {
      if (node_of[from] != node_of[to])
        edges.push_back({node_of[from], node_of[to],
                         Schedule::IsEarly(entry) && !recorded_[from] && !recorded_[to]});
    });
    ScheduleOptions options;
    options.in_order = plan_.schedule().in_order();
    part_.schedule.emplace(static_cast<int>(part_.node_steps.size()), edges, options);
    return {};
  }
  void FindWaits() {
    ForEachEdge([&](int from, int to, int) {
      if (recorded_[from] && recorded_[to] &&
          plan_.stream(NodeOf(from)) != plan_.stream(NodeOf(to)))
        part_.waits.push_back({to, from});
    });
    std::ranges::stable_sort(part_.waits, {}, &RecordedPart::Wait::to);
  }

  const Specialization& plan_;
  const BoundNodes& nodes_;
  IndexedVector<char> recorded_;  // by step
  RecordedPart part_;
};

OPKIT_COLD OPKIT_INLINE RecordedPart RecordedPart::Of(const Specialization& plan,
                                                      const BoundNodes& nodes) {
  return RecordedPartFinder(plan, nodes).Find();
}

OPKIT_INLINE RecordedRuns::RecordedRuns(const RecordedPart& part, const Specialization& plan,
                                        const BoundNodes& nodes)
    : part_(part), plan_(plan), nodes_(nodes) {
  int64_t bytes = 0;
  for (const Outer& outer : part.outer) bytes += plan.BytesOf(outer.value);
  may_copy_ = bytes <= kMostCopiedBytes;
}

OPKIT_INLINE Tensor* RecordedRuns::TensorOf(int value) const {
  return nodes_.blob(value).GetMutable<Tensor>();
}

OPKIT_INLINE RecordedRuns::Addresses RecordedRuns::AddressesNow() const {
  Addresses addresses;
  addresses.reserve(part_.outer.size());
  for (const Outer& outer : part_.outer) addresses.push_back(TensorOf(outer.value)->raw_data());
  return addresses;
}

OPKIT_INLINE void RecordedRuns::AllocateOutputs() const {
  for (const Outer& outer : part_.outer) {
    Tensor* const tensor = TensorOf(outer.value);
    if (!outer.is_output || tensor->initialized()) continue;
    const TensorInfo& info = plan_.types()[outer.value];
    *tensor = Tensor(info.shape.ToShape(), info.dtype, part_.device);
    tensor->raw_mutable_data();
  }
}

OPKIT_INLINE bool RecordedRuns::Choose(Issue issue) {
  chosen_ = nullptr;
  FinishDropped();
  if (!failure_.empty() || !operators_ran_) return false;
  try {
    AllocateOutputs();
    Addresses now = AddressesNow();
    const bool changed = now != last_;
    if (changed) ++changes_;
    last_ = std::move(now);
    for (const Recording& recording : in_place_)
      if (recording.addresses == last_) chosen_ = &recording;
    if (chosen_) return true;
    if (!changed && (in_place_.size() < kMostRecordings || !may_copy_))
      chosen_ = RecordInPlace(issue);
    else if (may_copy_ && changes_ >= 2)
      chosen_ = with_copies_.work ? &with_copies_ : RecordWithCopies(issue);
  } catch (const std::exception& error) {
    // The message and the line with the operator.
    failure_ = error.what();
    if (const size_t line = failure_.find('\n'); line != std::string::npos) {
      failure_.erase((std::min)(failure_.find('\n', line + 1), failure_.size()));
      failure_.replace(line, failure_.find_first_not_of(' ', line + 1) - line, "; ");
    }
    Drop();
  }
  return chosen_;
}

OPKIT_COLD OPKIT_INLINE const RecordedRuns::Recording* RecordedRuns::RecordInPlace(Issue issue) {
  if (in_place_.size() == kMostRecordings) in_place_.erase(in_place_.begin());
  in_place_.push_back({last_, Record(issue)});
  return &in_place_.back();
}

OPKIT_COLD OPKIT_INLINE const RecordedRuns::Recording* RecordedRuns::RecordWithCopies(Issue issue) {
  for (const Outer& outer : part_.outer) {
    const TensorInfo& info = plan_.types()[outer.value];
    buffers_.emplace_back(info.shape.ToShape(), info.dtype, part_.device).raw_mutable_data();
  }
  SwapBuffers();
  try {
    with_copies_.work = Record(issue);
  } catch (...) {
    SwapBuffers();
    throw;
  }
  SwapBuffers();
  return &with_copies_;
}

OPKIT_INLINE void RecordedRuns::SwapBuffers() {
  for (size_t i = 0; i < part_.outer.size(); ++i)
    std::swap(*TensorOf(part_.outer[i].value), buffers_[i]);
}

OPKIT_INLINE IntrusivePtr<RecordedWork> RecordedRuns::Record(Issue issue) const {
  std::vector<int> results = part_.handed_over;
  for (const Outer& outer : part_.outer)
    if (outer.is_output) results.push_back(outer.value);
  Addresses before;
  for (const int value : results) before.push_back(TensorOf(value)->raw_data());
  IntrusivePtr<RecordedWork> work = part_.record(part_.device, part_.streams, issue);
  for (size_t i = 0; i < results.size(); ++i)
    if (TensorOf(results[i])->raw_data() != before[i])
      Throw(ErrorCode::kUnsupported, "an operator left '", plan_.view().name(results[i]),
            "' in other memory than that of the output");
  return work;
}

OPKIT_INLINE void RecordedRuns::Launch(Event& event, const std::vector<Storage>& arenas) {
  before_.clear();
  after_.clear();
  RefCountedList& retained = event.state()->retained;
  retained.assign(arenas.begin(), arenas.end());
  std::erase_if(retained, [](const auto& storage) { return !storage; });
  retained.push_back(chosen_->work);
  const bool copied = chosen_ == &with_copies_;
  for (size_t i = 0; i < part_.outer.size(); ++i) {
    const Outer& outer = part_.outer[i];
    Tensor& tensor = *TensorOf(outer.value);
    if (tensor.storage()) retained.push_back(tensor.storage());
    const int64_t bytes = plan_.BytesOf(outer.value);
    if (!copied || bytes == 0) continue;
    retained.push_back(buffers_[i].storage());
    if (outer.is_output)
      after_.push_back({tensor.raw_mutable_data(), buffers_[i].raw_data(), bytes});
    else
      before_.push_back({buffers_[i].raw_mutable_data(), tensor.raw_data(), bytes});
  }
  launched_ = chosen_->work;
  launched_->Launch(before_, after_, event);
}

OPKIT_INLINE void RecordedRuns::OperatorsRan() {
  if (operators_ran_) return;
  operators_ran_ = true;
  last_ = AddressesNow();
}

OPKIT_INLINE void RecordedRuns::Drop() {
  if (launched_) dropped_ = std::move(launched_);
  chosen_ = nullptr;
  operators_ran_ = false;
  in_place_.clear();
  with_copies_ = {};
  buffers_.clear();
}

OPKIT_INLINE void RecordedRuns::FinishDropped() noexcept {
  if (dropped_) std::exchange(dropped_, {})->Finish();
}

OPKIT_INLINE std::string RecordedRuns::Explain() const {
  const std::string where = ToString(part_.device);
  if (!failure_.empty()) return StrCat("steps on ", where, " are not recorded: ", failure_);
  return StrCat(part_.steps.size(), " steps on ", where,
                " are recorded and repeated by one launch");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_RECORDED_RUNS_IPP_
