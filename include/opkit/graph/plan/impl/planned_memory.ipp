// Definitions of PlannedMemory: numbers the values of a specialization and of its bodies, and plans
// an arena for them on each device.
#ifndef OPKIT_GRAPH_PLAN_IMPL_PLANNED_MEMORY_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_PLANNED_MEMORY_IPP_

#include <algorithm>
#include <limits>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE PlannedMemory& PlannedMemory::Of(const PlannedBody& body) {
  return body.plan->memory_;
}

OPKIT_INLINE bool PlannedMemory::IsPlanned(int value) const {
  if (std::ranges::count(donated_, value)) return true;
  return (HasKnownSize(value) || HasBoundedSize(value)) &&
         (!plan_.view().IsOutput(value) || std::ranges::count(donated_outputs_, value));
}

OPKIT_INLINE bool PlannedMemory::HasKnownSize(int value) const {
  const TensorInfo& info = plan_.types()[value];
  // Elements that are C++ objects lie in memory of their own, which the operator keeps.
  return plan_.view().producer(value) >= 0 && info.shape.is_known() &&
         info.dtype != DType::kUndefined && !IsObject(info.dtype);
}

OPKIT_INLINE bool PlannedMemory::HasBoundedSize(int value) const {
  const TensorInfo& info = plan_.types()[value];
  if (plan_.view().producer(value) < 0 || info.shape.is_known() || !info.layout.is_standard() ||
      info.dtype == DType::kUndefined || IsObject(info.dtype))
    return false;
  const std::optional<Shape> most = info.shape.Most();
  int64_t bytes = 0;
  return most && !__builtin_mul_overflow(most->numel(), ItemSize(info.dtype), &bytes) &&
         bytes <= most_bound_bytes_;
}

OPKIT_INLINE bool PlannedMemory::IsDonated(int output) const {
  return std::ranges::count(donated_outputs_, output) > 0;
}

OPKIT_INLINE int64_t PlannedMemory::Scratch(int node) const {
  return plan_.choice(node).config.scratch_bytes;
}

// Numbers and names.

// Numbers the steps, those of bodies included, from `next` on. Returns the next free number.
OPKIT_INLINE int PlannedMemory::NumberSteps(int next) {
  for (int step = 0; step < plan_.schedule().size(); ++step) {
    begin_.push_back(next++);
    const auto bodies = plan_.BodiesOf(plan_.schedule().original_of(step));
    for (const std::unique_ptr<PlannedBody>& body : bodies) next = Of(*body).NumberSteps(next);
    end_.push_back(bodies.empty() ? begin_.back() : next++);
  }
  return next;
}

OPKIT_INLINE size_t PlannedMemory::NumberValues(size_t next, const PlannedMemory* enclosing) {
  first_number_ = next;
  for (int value = 0; value < plan_.view().num_values(); ++value) {
    const int outer = plan_.OuterOf(value);
    value_numbers_.push_back(outer < 0 ? next++ : enclosing->NumberOf(outer));
  }
  first_scratch_ = next;
  next += Index(plan_.schedule().size());
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies())
    next = Of(*body).NumberValues(next, this);
  return end_number_ = next;
}

// Returns the first number of a body's value. Only for the graph that has the arenas.
OPKIT_INLINE size_t PlannedMemory::first_body_value() const {
  return NumberOfScratch(plan_.schedule().size());
}

OPKIT_INLINE int PlannedMemory::StepOf(int64_t memory_step) const {
  const auto next = std::ranges::upper_bound(begin_, memory_step);
  return static_cast<int>(next - begin_.begin()) - 1;
}

OPKIT_INLINE bool PlannedMemory::IsScratchOfStep(size_t number) const {
  return number >= first_scratch_ && number < first_body_value();
}

OPKIT_COLD OPKIT_INLINE std::string PlannedMemory::Name(size_t number) const {
  const GraphView& view = plan_.view();
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies())
    if (Of(*body).Has(number))
      return StrCat(SelectionName(view.graph().node(body->node)), "/", Of(*body).Name(number));
  for (int value = 0; value < view.num_values(); ++value)
    if (NumberOf(value) == number) return view.name(value);
  return StrCat("scratch of step ", number - first_scratch_);
}

// Describes a value or scratch: "'sum' float32[2]", "scratch of Conv 'c1' (X, W) -> (P)".
OPKIT_COLD OPKIT_INLINE std::string PlannedMemory::DescribeMemory(size_t number) const {
  const GraphView& view = plan_.view();
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies())
    if (Of(*body).Has(number))
      return StrCat(Of(*body).DescribeMemory(number), " in ", body->name, " of ",
                    view.graph().node(body->node));
  if (number >= first_scratch_)
    return "scratch of " + NameOfStep(static_cast<int>(number - first_scratch_));
  for (int value = 0; value < view.num_values(); ++value)
    if (plan_.OuterOf(value) < 0 && NumberOf(value) == number)
      return StrCat("'", view.name(value), "' ", ToString(plan_.types()[value]));
  return {};
}

OPKIT_INLINE std::string PlannedMemory::NameOfStep(int step) const {
  return ToString(plan_.view().graph().node(plan_.schedule().original_of(step)));
}

OPKIT_COLD OPKIT_INLINE std::string PlannedMemory::LargestIn(const ArenaPlan& arena) const {
  size_t largest = 0;
  const auto bytes = [&](size_t value) {
    return arena.values[value].external ? -1 : arena.values[value].bytes;
  };
  for (size_t value = 1; value < arena.values.size(); ++value)
    if (bytes(value) > bytes(largest)) largest = value;
  const std::string begin = "in the memory of " + ToString(arena.device) + " between nodes, ";
  if (largest >= first_body_value())
    return StrCat(begin, "most of it the ", bytes(largest), " bytes of ", DescribeMemory(largest));
  const int value = static_cast<int>(largest);
  if (largest >= first_scratch_)
    return StrCat(begin, "most of it the ", bytes(largest), " bytes of scratch of node ",
                  NameOfStep(static_cast<int>(largest - first_scratch_)));
  const GraphView& view = plan_.view();
  const int node = view.producer(value);  // -1 for a donated input
  return StrCat(begin, "most of it '", view.name(value), "', which is ",
                ToString(plan_.types()[value]),
                node < 0 ? "" : " and made by node " + ToString(view.graph().node(node)));
}

// The order of steps.

// Adds the order of the steps inside `step`: its bodies run one after the other, and so do the
// steps of each body.
OPKIT_COLD OPKIT_INLINE void PlannedMemory::OrderBodies(int step, RunOrder& order) const {
  int last = begin_[step];
  const auto follow = [&](int next) {
    order.before.push_back(last);
    order.after.push_back(next);
  };
  const auto bodies = plan_.BodiesOf(plan_.schedule().original_of(step));
  for (const std::unique_ptr<PlannedBody>& body : bodies)
    for (int inner = 0; inner < body->plan->schedule().size(); ++inner) {
      follow(Of(*body).begin_[inner]);
      Of(*body).OrderBodies(inner, order);
      last = Of(*body).end_[inner];
    }
  if (!bodies.empty()) follow(end_[step]);
}

OPKIT_INLINE void PlannedMemory::OrderSteps(bool walked) {
  run_order_.nodes = NumberSteps(0);
  for (int step = 0; step < plan_.schedule().size(); ++step) {
    OrderBodies(step, run_order_);
    for (int entry : EntriesOf(plan_.schedule(), step)) {
      if (plan_.IsOrderOnly(step, entry)) continue;
      run_order_.before.push_back(end_[step]);
      run_order_.after.push_back(begin_[Schedule::TargetOf(entry)]);
    }
  }
  if (walked && !plan_.may_pend())
    for (int step = 0; step < run_order_.nodes; ++step) run_order_.stages.push_back(step);
}

// Lifetimes.

// Returns the number of bodies that a node has, unplanned ones included; 0 if none is planned.
OPKIT_INLINE size_t PlannedMemory::BodyCount(int node) const {
  return plan_.BodiesOf(node).empty() ? 0 : plan_.view().graph().node(node).subgraphs().size();
}

// True if the node's only body returns this input unchanged.
OPKIT_INLINE bool PlannedMemory::ForwardsInput(int node, int value) const {
  const Specialization& body = *plan_.BodiesOf(node)[0]->plan;
  for (size_t i = 0; i < body.inputs().size(); ++i) {  // inputs are the first values
    const int inner = body.ValueOf(static_cast<int>(i));
    if (body.OuterOf(inner) == value && body.view().IsOutput(inner)) return true;
  }
  return false;
}

// Fills in the values of an arena. The only body of a node makes the node's outputs and reads its
// inputs, except for an input that the body returns unchanged. If a node has several bodies, a run
// takes one: the outputs then live from the begin of the node, and the inputs until its end. So do
// those of a node with a body apart, which runs any number of times.
// `carrier_end` is the end of the step that runs this body; -1: no body.
OPKIT_INLINE void PlannedMemory::Describe(ArenaPlan& arena, int carrier_end,
                                          int& planned_values) const {
  const GraphView& view = plan_.view();
  const auto is_exclusive = [&](int node) {
    return BodyCount(node) > 1 || plan_.HasBodyApart(node);
  };
  const auto step_of = [&](int node) { return plan_.schedule().node_of(node); };
  for (int value = 0; value < view.num_values(); ++value) {
    RunValue& planned = arena.values[NumberOf(value)];
    const bool is_own = plan_.OuterOf(value) < 0;
    if (is_own && IsPlanned(value) && MemoryDevice(plan_.types()[value].device) == arena.device) {
      planned.external = false;
      planned.bytes = plan_.BytesOf(value);
      planned.kept = view.IsOutput(value);
      arena.bounded[NumberOf(value)] = !plan_.types()[value].shape.is_known();
      ++planned_values;
    }
    if (planned.external) continue;
    if (const int node = view.producer(value);
        node >= 0 && (is_own || planned.producer == carrier_end)) {
      planned.producer = is_exclusive(node) ? begin_[step_of(node)] : end_[step_of(node)];
      // A branch may write the value at any of its steps, so the value lives to the node's end even
      // if no node reads it.
      if (is_exclusive(node)) planned.users.push_back(end_[step_of(node)]);
    }
    for (const int node : view.consumers(value))
      if (plan_.BodiesOf(node).empty() || is_exclusive(node) || ForwardsInput(node, value))
        planned.users.push_back(end_[step_of(node)]);
  }
  for (int step = 0; step < plan_.schedule().size(); ++step) {
    const int node = plan_.schedule().original_of(step);
    if (Scratch(node) == 0 || MemoryDevice(view.graph().node(node).device()) != arena.device)
      continue;
    RunValue& scratch = arena.values[NumberOfScratch(step)];
    scratch.external = false;
    scratch.bytes = Scratch(node);
    scratch.producer = begin_[step];
  }
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies())
    Of(*body).Describe(arena, end_[step_of(body->node)], planned_values);
}

// Lists the pairs of values of an arena that may share bytes.
OPKIT_INLINE void PlannedMemory::AllowInPlace(ArenaPlan& arena) const {
  for (int node = 0; node < plan_.view().num_nodes(); ++node)
    for (const auto& [input, output] : plan_.choice(node).config.inplace)
      AllowInPlace(arena, node, input, output);
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies()) Of(*body).AllowInPlace(arena);
}

OPKIT_INLINE void PlannedMemory::AllowInPlace(ArenaPlan& arena, int node, int input,
                                              int output) const {
  const GraphView& view = plan_.view();
  const int from = view.inputs(node)[Index(input)];
  const int to = view.outputs(node)[Index(output)];
  if (from < 0 || to < 0 || from == to || view.producer(to) != node) return;
  const bool known = plan_.types()[from].shape.is_known() && plan_.types()[to].shape.is_known();
  if (!known && !HaveSameElements(node, input, output)) return;
  const int step = end_[plan_.schedule().node_of(node)];
  const RunValue& read = arena.values[NumberOf(from)];
  const RunValue& written = arena.values[NumberOf(to)];
  if (read.external || written.external || written.producer != step) return;
  // The node may read the value as several inputs; all of them must be allowed to share it.
  for (size_t i = 0; i < view.inputs(node).size(); ++i)
    if (view.inputs(node)[i] == from && !MayShare(node, static_cast<int>(i), output)) return;
  arena.inplace.push_back({step, static_cast<int>(NumberOf(from)), static_cast<int>(NumberOf(to))});
}

// True if both shapes have the same number of elements, whatever their symbols stand for.
OPKIT_COLD inline bool HaveSameElements(const SymbolicShape& a, const SymbolicShape& b) {
  std::vector<std::string> symbols[2];
  int64_t products[2] = {1, 1};
  for (int side = 0; side < 2; ++side) {
    const SymbolicShape& shape = side == 0 ? a : b;
    if (!shape.has_rank()) return false;
    for (const Dim& dim : shape.dims()) {
      if (dim.is_unknown()) return false;
      if (dim.is_symbol())
        symbols[side].push_back(dim.symbol());
      else if (__builtin_mul_overflow(products[side], dim.value(), &products[side]))
        return false;
    }
    std::ranges::sort(symbols[side]);
  }
  return products[0] == products[1] && symbols[0] == symbols[1];
}

// True if the output always has as many elements as the input. Two values with the same bound may
// differ in a run, so the operator's inference decides: it runs with a symbol for each extent that
// a run decides.
OPKIT_COLD OPKIT_INLINE bool PlannedMemory::HaveSameElements(int node, int input,
                                                             int output) const {
  const GraphView& view = plan_.view();
  const OperatorDef& def = view.graph().node(node);
  const OpSchema* const schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema || plan_.PartsOf(node).size() != 1) return false;  // a fused node computes more
  IndexedVector<TensorInfo> infos = plan_.types().Of(view.inputs(node));
  for (size_t i = 0; i < infos.size(); ++i)
    for (int axis = 0; infos[i].shape.has_rank() && axis < infos[i].shape.rank(); ++axis)
      if (Dim& dim = infos[i].shape[axis]; !dim.is_known())
        dim = Sym(StrCat(view.inputs(node)[i], " ", axis));
  const SymbolicShape from = infos[input].shape;
  try {
    const IndexedVector<TensorInfo> made = schema->InferOutputs(def, std::move(infos));
    return detail::HaveSameElements(from, made[output].shape);
  } catch (const Error&) {
    return false;
  }
}

OPKIT_INLINE bool PlannedMemory::MayShare(int node, int input, int output) const {
  return std::ranges::count(plan_.choice(node).config.inplace, std::pair(input, output)) > 0;
}

OPKIT_INLINE void PlannedMemory::FindLifetimesOf(ArenaPlan& arena, int& planned_values) const {
  arena.values.assign(end_number_, {});
  arena.bounded.assign(end_number_, 0);
  arena.inplace.clear();
  for (RunValue& value : arena.values) value.external = true;
  Describe(arena, -1, planned_values);
  AllowInPlace(arena);
  arena.lifetimes = FindLifetimes(run_order_, arena.values, arena.inplace);
}

// Donated inputs.

// Finds the outputs that can lie in the buffer of a donated input. Other outputs lie outside the
// arenas.
OPKIT_COLD OPKIT_INLINE void PlannedMemory::FindDonatedOutputs(ArenaPlan& arena) {
  const std::vector<int> before = donated_outputs_;  // results of earlier calls for other devices
  for (const int output : plan_.view().outputs())
    if (HasKnownSize(output)) donated_outputs_.push_back(output);
  int count = 0;
  FindLifetimesOf(arena, count);
  std::vector<int> found = before;
  for (const int output : donated_outputs_)
    for (const int input : donated_)
      if (BufferOf(arena, output) >= 0 && BufferOf(arena, output) == BufferOf(arena, input))
        found.push_back(output);
  donated_outputs_ = std::move(found);
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::PlaceDonated(ArenaPlan& arena) const {
  int64_t next = arena.plan.arena_bytes;
  for (const int input : donated_) {
    const int buffer = BufferOf(arena, input);
    if (buffer < 0) continue;
    const int64_t bytes = arena.lifetimes.buffers[buffer].size;
    arena.plan.offsets[buffer] = next;
    arena.donated.push_back({input, next, next + bytes});
    next += (bytes + 63) / 64 * 64;
  }
}

// Arenas.

OPKIT_COLD OPKIT_INLINE void PlannedMemory::AddArenas(std::vector<ArenaPlan>& arenas) const {
  const auto add = [&](Device device) {
    for (const ArenaPlan& arena : arenas)
      if (arena.device == device) return;
    arenas.emplace_back().device = device;
  };
  const GraphView& view = plan_.view();
  for (int value = 0; value < view.num_values(); ++value)
    if (plan_.OuterOf(value) < 0 && IsPlanned(value))
      add(MemoryDevice(plan_.types()[value].device));
  for (const int value : donated_) add(MemoryDevice(plan_.types()[value].device));
  for (int node = 0; node < view.num_nodes(); ++node)
    if (Scratch(node) > 0) add(MemoryDevice(view.graph().node(node).device()));
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies()) Of(*body).AddArenas(arenas);
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::PlanArenas(const Options& options) {
  OrderSteps(options.walked);
  for (const int input : options.donated)
    if (!IsObject(plan_.types()[input].dtype)) donated_.push_back(input);
  NumberValues(0, nullptr);
  try {
    TryArenas(options);
  } catch (const Error& error) {
    const bool too_large =
        error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kOutOfRange;
    if (!too_large || summary_.bounded_values == 0) throw;
    LeaveBounded();
    TryArenas(options);
  }
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::TryArenas(const Options& options) {
  summary_ = {};
  arenas_.clear();
  donated_outputs_.clear();
  AddArenas(arenas_);
  for (ArenaPlan& arena : arenas_) PlanArena(arena, options);
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::LeaveBounded() {
  most_bound_bytes_ = -1;
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies()) Of(*body).LeaveBounded();
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::PlanArena(ArenaPlan& arena, const Options& options) {
  if (!donated_.empty()) FindDonatedOutputs(arena);
  FindLifetimesOf(arena, summary_.planned_values);
  for (const uint8_t bounded : arena.bounded) summary_.bounded_values += bounded;
  // Values in a donated input take no bytes of the arena.
  IndexedVector<MemoryInterval> buffers = arena.lifetimes.buffers;
  for (const int input : donated_)
    if (const int buffer = BufferOf(arena, input); buffer >= 0) buffers[buffer].size = 0;
  const auto plan = [&] {
    return PlanMemory(buffers, arena.lifetimes.conflicts, options.plan.search);
  };
  arena.plan = InContext(plan, [&] { return LargestIn(arena); });
  PlaceDonated(arena);
  CheckCapacity(arena, options.plan.capacity_bytes);
  // Plans with more values are verified only if options.plan.verify is set: the time is quadratic
  // in the number of values.
  [[maybe_unused]] constexpr size_t kCheaplyVerified = 4096;
  if (options.plan.verify) Verify(arena);
  OPKIT_ASSERT(options.plan.verify || arena.values.size() > kCheaplyVerified || Verify(arena));
  summary_.arena_bytes += arena.plan.arena_bytes;
  summary_.lower_bound_bytes += arena.plan.lower_bound_bytes;
  summary_.seconds += arena.plan.seconds;
  for (const RunValue& value : arena.values)
    if (!value.external) AddNaive(value);
  for (uint8_t granted : arena.lifetimes.granted) summary_.inplace_values += granted;
}

OPKIT_COLD OPKIT_INLINE void PlannedMemory::CheckCapacity(const ArenaPlan& arena,
                                                          int64_t capacity) const {
  if (capacity < 0)
    Throw(ErrorCode::kInvalidArgument, "PlanOptions::memory.capacity_bytes is ", capacity,
          ", expected 0 or more");
  if (capacity == 0 || arena.plan.arena_bytes <= capacity) return;
  const IndexedVector<MemoryInterval>& buffers = arena.lifetimes.buffers;
  // Find the step at which the most bytes are live.
  std::vector<int64_t> change(Index(run_order_.nodes) + 2, 0);
  const auto at = [&](int64_t step) {
    return Index((std::clamp)(step + 1, int64_t{0}, int64_t{run_order_.nodes} + 1));
  };
  for (const MemoryInterval& buffer : buffers) {
    change[at(buffer.lower)] += buffer.size;
    if (at(buffer.upper) < change.size()) change[at(buffer.upper)] -= buffer.size;
  }
  int64_t live = 0, most = -1, peak = 0;
  for (size_t step = 0; step < change.size(); ++step)
    if ((live += change[step]) > most) most = live, peak = static_cast<int64_t>(step) - 1;
  std::vector<int> values;
  for (size_t value = 0; value < arena.values.size(); ++value) {
    const int buffer = arena.lifetimes.buffer_of[value];
    if (buffer >= 0 && buffers[buffer].lower <= peak && peak < buffers[buffer].upper)
      values.push_back(static_cast<int>(value));
  }
  const auto bytes_of = [&](int value) { return arena.values[value].bytes; };
  StableSort(values, [&](int a, int b) { return bytes_of(a) > bytes_of(b); });
  constexpr size_t kShown = 5;
  std::string list;
  for (const int value : std::span(values).first((std::min)(kShown, values.size())))
    list += StrCat("\n  ", bytes_of(value), " bytes: ", DescribeMemory(Index(value)));
  if (values.size() > kShown) list += StrCat("\n  and ", values.size() - kShown, " more");
  Throw(ErrorCode::kOutOfMemory, "the memory between nodes on ", ToString(arena.device), " takes ",
        arena.plan.arena_bytes, " bytes (no plan less than ", arena.plan.lower_bound_bytes,
        StrCat("), more than the capacity of ", capacity, "; live together:"), list);
}

// Adds the bytes that a value takes in a buffer of its own. The sum stops at the largest int64: it
// counts shared bytes once for each value, so it may be larger than all planned buffers together.
OPKIT_INLINE void PlannedMemory::AddNaive(const RunValue& value) {
  const int64_t rest = (value.alignment - value.bytes % value.alignment) % value.alignment;
  int64_t& sum = summary_.naive_bytes;
  if (__builtin_add_overflow(sum, value.bytes, &sum) || __builtin_add_overflow(sum, rest, &sum))
    sum = (std::numeric_limits<int64_t>::max)();
}

// Adds each step that reads or writes a value, also a step of a body, to the value's users. The
// verifier then knows all users, whatever users Describe lists for nodes with bodies.
OPKIT_COLD OPKIT_INLINE void PlannedMemory::AddTouches(IndexedVector<RunValue>& values) const {
  for (int step = 0; step < plan_.schedule().size(); ++step) {
    const int node = plan_.schedule().original_of(step), end = end_[step];
    // The steps of bodies read and write, except for bodies apart.
    if (!plan_.BodiesOf(node).empty() && !plan_.HasBodyApart(node)) continue;
    const auto touch = [&](const auto& touched) {
      for (const int value : touched) {
        if (value < 0) continue;
        RunValue& one = values[NumberOf(value)];
        if (one.producer != end && !Contains(one.users, end)) one.users.push_back(end);
      }
    };
    touch(plan_.view().inputs(node));
    touch(plan_.view().outputs(node));
  }
  for (const std::unique_ptr<PlannedBody>& body : plan_.bodies()) Of(*body).AddTouches(values);
}

OPKIT_COLD OPKIT_INLINE bool PlannedMemory::Verify(const ArenaPlan& arena) const {
  IndexedVector<int64_t> addresses;
  std::vector<std::string> names;
  for (size_t value = 0; value < arena.values.size(); ++value)
    addresses.push_back(arena.OffsetOf(value));
  for (size_t value = 0; value < first_body_value(); ++value)
    names.push_back(value < first_scratch_ ? plan_.view().name(static_cast<int>(value))
                                           : std::string());
  for (size_t value = first_body_value(); value < arena.values.size(); ++value)
    names.push_back(Name(value));
  const int64_t end = arena.donated.empty() ? arena.plan.arena_bytes : arena.donated.back().end;
  IndexedVector<RunValue> values = arena.values;
  AddTouches(values);
  VerifyMemoryPlan(run_order_, values, arena.inplace, addresses, end, names);
  return true;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_PLANNED_MEMORY_IPP_
