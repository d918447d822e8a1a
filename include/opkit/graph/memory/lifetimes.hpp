// FindLifetimes: from the order that an executor keeps to the buffers that memory is planned for,
// and which of them can be live together in some legal run. Between selection, which says what
// steps read, write and may overwrite, and PlanMemory.
#ifndef OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
#define OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_

#include "opkit/base/error.hpp"
#include "opkit/graph/memory/lifetime_types.hpp"
#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {

// `buffers` and `conflicts` are what PlanMemory takes. A value's place in the arena is the offset
// of its buffer plus its offset in it.
struct MemoryLifetimes {
  std::vector<MemoryInterval> buffers;
  MemoryConflicts conflicts;              // empty: the buffers' spans decide
  std::vector<int> buffer_of;             // of each value; -1 for external ones
  std::vector<int64_t> offset_in_buffer;  // of each value
  std::vector<uint8_t> granted;           // of each in-place option, 1 where the values share bytes
  // Two buffers conflict only where a legal run has both live. False for a large graph without
  // stages, and for stages of several steps: some that conflict then could share.
  bool exact = true;
};

struct LifetimeOptions {
  // Up to so many steps without stages, conflicts are exact: steps squared bits, and 8 bytes for a
  // conflict. Above it, or past 8 million conflicts, lifetimes are read off the longest path: a
  // value is live between the last step on it before all its uses and the first one after them.
  int exact_nodes = 4096;
};

namespace detail {

inline constexpr int64_t kMostExactConflicts = 8'000'000;

// Step u has completed before step v starts, as far as it is known: always true where it says so.
template <class Run>
class StepOrder {
 public:
  StepOrder(const Run& run, bool exact) : run_(run) {
    const auto n = static_cast<size_t>(run.nodes);
    ListPredecessors();
    if (!run.stages.empty()) {
      ClockByStages();
    } else if (exact) {
      words_ = (n + 63) / 64;
      before_.assign(n * words_, 0);
      for (size_t v = 0; v < n; ++v) {
        start_.push_back(static_cast<int64_t>(v));
        done_.push_back(static_cast<int64_t>(v) + 1);
        for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
          const auto u = static_cast<size_t>(predecessors_[static_cast<size_t>(at)]);
          for (size_t w = 0; w < words_; ++w) before_[v * words_ + w] |= before_[u * words_ + w];
          before_[v * words_ + u / 64] |= uint64_t{1} << (u % 64);
        }
      }
      end_ = run.nodes;
    } else {
      ClockByLongestPath();
    }
  }

  bool Precedes(int u, int v) const {
    if (words_ > 0) return Bit(static_cast<size_t>(v), u);
    return done_[static_cast<size_t>(u)] <= start_[static_cast<size_t>(v)] || HasPath(u, v);
  }
  bool has_matrix() const { return words_ > 0; }
  size_t words() const { return words_; }
  // With a matrix: who precedes v, as bits.
  const uint64_t* Before(int v) const { return &before_[static_cast<size_t>(v) * words_]; }

  // Without a matrix done(u) <= start(v) only where u precedes v; with it they are the stored
  // order.
  int64_t start(int v) const { return start_[static_cast<size_t>(v)]; }
  int64_t done(int v) const { return done_[static_cast<size_t>(v)]; }
  // Before every step, and after.
  int64_t begin() const { return -1; }
  int64_t end() const { return end_; }

 private:
  bool Bit(size_t v, int u) const {
    return (before_[v * words_ + static_cast<size_t>(u) / 64] >> (u % 64)) & 1;
  }

  void ListPredecessors() {
    starts_.assign(static_cast<size_t>(run_.nodes) + 1, 0);
    predecessors_.resize(run_.after.size());
    for (int after : run_.after) ++starts_[static_cast<size_t>(after)];
    int64_t sum = 0;
    for (int64_t& start : starts_) start = sum += start;
    for (size_t e = run_.after.size(); e-- > 0;)
      predecessors_[static_cast<size_t>(--starts_[static_cast<size_t>(run_.after[e])])] =
          run_.before[e];
  }

  // A synchronous step is done when its stage is; an asynchronous one when a successor has started.
  // What order there is inside a stage is left to HasPath.
  void ClockByStages() {
    const auto n = static_cast<size_t>(run_.nodes);
    end_ = n == 0 ? 0 : int64_t{run_.stages[n - 1]} + 1;
    for (size_t v = 0; v < n; ++v) {
      start_.push_back(run_.stages[v]);
      const bool asynchronous = !run_.asynchronous.empty() && run_.asynchronous[v] != 0;
      done_.push_back(asynchronous ? end_ : int64_t{run_.stages[v]} + 1);
    }
    const auto alone = [&](size_t v) {
      return (v == 0 || run_.stages[v - 1] != run_.stages[v]) &&
             (v + 1 == n || run_.stages[v + 1] != run_.stages[v]);
    };
    for (size_t e = 0; e < run_.before.size(); ++e) {
      const auto after = static_cast<size_t>(run_.after[e]);
      const int64_t done = start_[after] + (alone(after) ? 0 : 1);
      int64_t& known = done_[static_cast<size_t>(run_.before[e])];
      if (done < known && done > start_[static_cast<size_t>(run_.before[e])]) known = done;
    }
  }

  // Steps on the longest path are the ticks. A step off it starts after the last tick that precedes
  // it and is done before the first tick that it precedes.
  void ClockByLongestPath() {
    const auto n = static_cast<size_t>(run_.nodes);
    std::vector<int> depth(n, 0), via(n, -1), tick(n, -1);
    int last = 0;
    for (size_t v = 0; v < n; ++v) {
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        const int u = predecessors_[static_cast<size_t>(at)];
        if (depth[static_cast<size_t>(u)] < depth[v]) continue;
        depth[v] = depth[static_cast<size_t>(u)] + 1;
        via[v] = u;
      }
      if (depth[v] > depth[static_cast<size_t>(last)]) last = static_cast<int>(v);
    }
    if (n == 0) return;
    const int ticks = depth[static_cast<size_t>(last)] + 1;
    for (int v = last; v >= 0; v = via[static_cast<size_t>(v)])
      tick[static_cast<size_t>(v)] = depth[static_cast<size_t>(v)];
    end_ = 2 * int64_t{ticks};
    start_.assign(n, -1);
    done_.assign(n, end_);
    for (size_t v = 0; v < n; ++v) {
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        const auto u = static_cast<size_t>(predecessors_[static_cast<size_t>(at)]);
        const int64_t after = tick[u] >= 0 ? 2 * int64_t{tick[u]} + 1 : start_[u];
        start_[v] = after > start_[v] ? after : start_[v];
      }
      if (tick[v] >= 0) start_[v] = 2 * int64_t{tick[v]};
    }
    for (size_t v = n; v-- > 0;) {
      if (tick[v] >= 0) done_[v] = 2 * int64_t{tick[v]} + 1;
      const int64_t before = tick[v] >= 0 ? 2 * int64_t{tick[v]} : done_[v];
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        int64_t& done = done_[static_cast<size_t>(predecessors_[static_cast<size_t>(at)])];
        done = before < done ? before : done;
      }
    }
  }

  // Backwards along edges, for a while: an unknown order counts as none.
  bool HasPath(int u, int v) const {
    constexpr size_t kMostVisits = 256;
    if (u >= v) return false;
    std::vector<int> visits(1, v);
    for (size_t i = 0; i < visits.size(); ++i)
      for (int64_t at = starts_[static_cast<size_t>(visits[i])];
           at < starts_[static_cast<size_t>(visits[i]) + 1]; ++at) {
        const int before = predecessors_[static_cast<size_t>(at)];
        if (before == u) return true;
        if (before > u && visits.size() < kMostVisits) visits.push_back(before);
      }
    return false;
  }

  const Run& run_;
  std::vector<int64_t> starts_;  // of the predecessors of each step
  std::vector<int> predecessors_;
  std::vector<int64_t> start_, done_;
  int64_t end_ = 0;
  size_t words_ = 0;
  std::vector<uint64_t> before_;
};

template <class Run>
void CheckRunOrder(const Run& run) {
  if (run.nodes < 0)
    Throw(ErrorCode::kInvalidArgument, "expected 0 or more steps, found ", run.nodes);
  const auto n = static_cast<size_t>(run.nodes);
  if (run.before.size() != run.after.size())
    Throw(ErrorCode::kInvalidArgument, "expected both ends of every edge, found ",
          run.before.size(), " in `before` and ", run.after.size(), " in `after`");
  for (size_t e = 0; e < run.before.size(); ++e)
    if (run.before[e] < 0 || run.before[e] >= run.after[e] || run.after[e] >= run.nodes)
      Throw(ErrorCode::kInvalidArgument, "edge ", e, " goes from step ", run.before[e], " to step ",
            run.after[e], ": expected 0 <= before < after < ", run.nodes);
  if (!run.stages.empty() && run.stages.size() != n)
    Throw(ErrorCode::kInvalidArgument, "expected a stage for each of ", n,
          " steps, or none; found ", run.stages.size());
  for (size_t v = 1; v < run.stages.size(); ++v)
    if (run.stages[v] < run.stages[v - 1])
      Throw(ErrorCode::kInvalidArgument, "step ", v, " has stage ", run.stages[v],
            ", less than the step before it: expected ascending stages");
  if (!run.stages.empty() && run.stages[0] < 0)
    Throw(ErrorCode::kInvalidArgument, "step 0 has stage ", run.stages[0], ": expected 0 or more");
  if (!run.asynchronous.empty() && run.asynchronous.size() != n)
    Throw(ErrorCode::kInvalidArgument, "expected `asynchronous` for each of ", n,
          " steps, or none; found ", run.asynchronous.size());
}

template <class Run, class Value>
void CheckRunValue(const Run& run, const std::vector<Value>& values, size_t i) {
  const Value& value = values[i];
  if (value.bytes < 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has ", value.bytes,
          " bytes: expected 0 or more");
  if (value.alignment <= 0 || (value.alignment & (value.alignment - 1)) != 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has alignment ", value.alignment,
          ": expected a power of two");
  if (value.producer < -1 || value.producer >= run.nodes)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is made by step ", value.producer,
          ": expected one of the ", run.nodes, " steps, or -1 for what is there before");
  for (int user : value.users)
    if (user < 0 || user >= run.nodes)
      Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
            ": expected one of the ", run.nodes, " steps");
  if (value.view_of < 0) return;
  if (static_cast<size_t>(value.view_of) >= values.size())
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of value ", value.view_of,
          ": expected one of the ", values.size(), " values");
  const int64_t viewed = values[static_cast<size_t>(value.view_of)].bytes;
  if (value.view_offset < 0 || value.view_offset > viewed ||
      value.bytes > viewed - value.view_offset)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " views ", value.bytes, " bytes from byte ",
          value.view_offset, " of value ", value.view_of, ", which has ", viewed, " bytes");
}

// A value that is no view, with its views and whatever was granted its bytes. Those that joined by
// grants follow each other: every touch of one precedes the next step that was granted. So a
// further step needs to follow the last such step and what joined then, and chains cost linear
// time.
template <class Run, class Value, class Lists = std::vector<std::vector<int>>>
class ValueMerger {
 public:
  ValueMerger(const Run& run, const std::vector<Value>& values, const StepOrder<Run>& order)
      : values_(values),
        order_(order),
        root_(values.size()),
        offset_(values.size()),
        last_step_(values.size(), -1),
        last_joined_(values.size(), 0) {
    const size_t n = values.size();
    members_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      CheckRunValue(run, values, i);
      CheckUsers(i);
      size_t at = i, hops = 0;
      for (; values[at].view_of >= 0; at = static_cast<size_t>(values[at].view_of)) {
        if (static_cast<size_t>(values[at].view_of) >= n || ++hops > n)
          Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of itself");
        offset_[i] += values[at].view_offset;
      }
      root_[i] = static_cast<int>(at);
      members_[at].push_back(static_cast<int>(i));
    }
  }

  template <class Option>
  bool Grant(const Option& option, size_t index) {
    CheckOption(option, index);
    const auto input = static_cast<size_t>(option.input);
    const auto output = static_cast<size_t>(option.output);
    const auto kept = static_cast<size_t>(root_[input]);
    const auto merged = static_cast<size_t>(root_[output]);
    if (kept == merged || merged != output || values_[kept].external || values_[merged].external)
      return false;
    if (values_[output].bytes > values_[input].bytes ||
        offset_[input] % values_[output].alignment != 0)
      return false;
    if (last_step_[kept] >= 0 && !order_.Precedes(last_step_[kept], option.node)) return false;
    int reads = 0;
    for (size_t at = last_joined_[kept]; at < members_[kept].size(); ++at) {
      const Value& value = values_[static_cast<size_t>(members_[kept][at])];
      if (value.kept || value.external) return false;
      for (int user : value.users) {
        if (user == option.node)
          ++reads;
        else if (!order_.Precedes(user, option.node))
          return false;
      }
      if (value.producer >= 0 && !order_.Precedes(value.producer, option.node)) return false;
    }
    if (reads != 1) return false;
    for (int i : members_[merged]) {
      const Value& value = values_[static_cast<size_t>(i)];
      if (value.producer != option.node &&
          (value.producer < 0 || !order_.Precedes(option.node, value.producer)))
        return false;
      for (int user : value.users)
        if (user != option.node && !order_.Precedes(option.node, user)) return false;
    }
    const bool alone = last_step_[merged] < 0;
    last_step_[kept] = alone ? option.node : last_step_[merged];
    last_joined_[kept] = members_[kept].size() + (alone ? 0 : last_joined_[merged]);
    for (int i : members_[merged]) {
      root_[static_cast<size_t>(i)] = static_cast<int>(kept);
      offset_[static_cast<size_t>(i)] += offset_[input];
      members_[kept].push_back(i);
    }
    members_[merged].clear();
    return true;
  }

  const std::vector<int>& members(size_t root) const { return members_[root]; }
  int root(size_t value) const { return root_[value]; }
  int64_t offset(size_t value) const { return offset_[value]; }

 private:
  void CheckUsers(size_t i) const {
    const Value& value = values_[i];
    if (value.producer < 0) return;
    for (int user : value.users)
      if (user < value.producer ||
          (order_.has_matrix() && user != value.producer && !order_.Precedes(value.producer, user)))
        Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
              ", which no edge orders after step ", value.producer, ", which makes it");
  }
  template <class Option>
  void CheckOption(const Option& option, size_t index) const {
    const auto count = static_cast<int>(values_.size());
    if (option.input < 0 || option.input >= count || option.output < 0 || option.output >= count)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, " is of values ", option.input,
            " and ", option.output, ": expected two of the ", count, " values");
    bool reads = false;
    for (int user : values_[static_cast<size_t>(option.input)].users) reads |= user == option.node;
    if (!reads || values_[static_cast<size_t>(option.output)].producer != option.node)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, ": expected step ", option.node,
            " to read value ", option.input, " and to make value ", option.output);
  }

  const std::vector<Value>& values_;
  const StepOrder<Run>& order_;
  std::vector<int> root_;
  std::vector<int64_t> offset_;
  Lists members_;
  std::vector<int> last_step_;       // of each root, that was granted; -1: none
  std::vector<size_t> last_joined_;  // from there on in members_
};

// The steps that touch each buffer, in lists one after the other; the run's begin and end apart.
template <class Flags>
struct BufferUses {
  std::vector<int64_t> starts;
  std::vector<int> steps;
  Flags from_begin, to_end;
};

// A buffer precedes another when all steps that touch it have completed before any that touches
// the other starts. False when there are too many conflicts to list.
template <class Order, class Uses, class Conflicts>
bool ListExactConflicts(const Order& order, const Uses& uses, Conflicts* conflicts) {
  const size_t n = uses.from_begin.size(), words = order.words(), columns = (n + 63) / 64;
  std::vector<uint64_t> precedes(n * columns, 0);  // [b] holds those that precede buffer b
  std::vector<uint64_t> common(words);             // steps that precede every touch of b
  for (size_t b = 0; b < n; ++b) {
    if (uses.from_begin[b]) continue;
    common.assign(words, ~uint64_t{0});
    for (int64_t at = uses.starts[b]; at < uses.starts[b + 1]; ++at) {
      const uint64_t* before = order.Before(uses.steps[static_cast<size_t>(at)]);
      for (size_t w = 0; w < words; ++w) common[w] &= before[w];
    }
    for (size_t a = 0; a < n; ++a) {
      if (uses.to_end[a] || a == b) continue;
      bool all = true;
      for (int64_t at = uses.starts[a]; all && at < uses.starts[a + 1]; ++at) {
        const auto step = static_cast<size_t>(uses.steps[static_cast<size_t>(at)]);
        all = (common[step / 64] >> (step % 64)) & 1;
      }
      if (all) precedes[b * columns + a / 64] |= uint64_t{1} << (a % 64);
    }
  }
  for (size_t b = 0; b < n; ++b)
    for (size_t a = 0; a < n; ++a)
      if ((precedes[b * columns + a / 64] >> (a % 64)) & 1)
        precedes[a * columns + b / 64] |= uint64_t{1} << (b % 64);
  int64_t apart = 0;
  for (uint64_t word : precedes) apart += __builtin_popcountll(word);
  const auto all = static_cast<int64_t>(n) * (static_cast<int64_t>(n) - 1);
  if (all - apart > 2 * kMostExactConflicts) return false;
  conflicts->others.reserve(static_cast<size_t>(all - apart));
  for (size_t b = 0; b < n; ++b) {
    conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
    for (size_t a = 0; a < n; ++a)
      if (a != b && !((precedes[b * columns + a / 64] >> (a % 64)) & 1))
        conflicts->others.push_back(static_cast<int>(a));
  }
  conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
  return true;
}

template <class Lifetimes, class Run, class Value, class Option>
Lifetimes FindLifetimes(const Run& run, const std::vector<Value>& values,
                        const std::vector<Option>& in_place, bool exact) {
  const StepOrder<Run> order(run, exact);
  ValueMerger<Run, Value> merger(run, values, order);
  Lifetimes out;
  for (size_t i = 0; i < in_place.size(); ++i)
    out.granted.push_back(merger.Grant(in_place[i], i) ? 1 : 0);
  out.exact = exact || !run.stages.empty();
  for (size_t v = 1; v < run.stages.size(); ++v)
    if (run.stages[v] == run.stages[v - 1]) out.exact = false;
  out.buffer_of.assign(values.size(), -1);
  out.offset_in_buffer.assign(values.size(), 0);
  BufferUses<decltype(out.granted)> uses;
  for (size_t root = 0; root < values.size(); ++root) {
    if (merger.members(root).empty() || values[root].external) continue;
    typename decltype(out.buffers)::value_type buffer{order.end(), order.begin(),
                                                      values[root].bytes, 1};
    uses.starts.push_back(static_cast<int64_t>(uses.steps.size()));
    bool from_begin = false, to_end = false;
    for (int member : merger.members(root)) {
      const auto m = static_cast<size_t>(member);
      const Value& value = values[m];
      out.buffer_of[m] = static_cast<int>(out.buffers.size());
      out.offset_in_buffer[m] = merger.offset(m);
      if (value.view_of < 0 && value.alignment > buffer.alignment)
        buffer.alignment = value.alignment;
      from_begin |= value.producer < 0;
      to_end |= value.kept;
      if (value.producer >= 0) uses.steps.push_back(value.producer);
      uses.steps.insert(uses.steps.end(), value.users.begin(), value.users.end());
    }
    for (auto at = static_cast<size_t>(uses.starts.back()); at < uses.steps.size(); ++at) {
      const int step = uses.steps[at];
      if (order.start(step) < buffer.lower) buffer.lower = order.start(step);
      if (order.done(step) > buffer.upper) buffer.upper = order.done(step);
    }
    if (from_begin) buffer.lower = order.begin();
    if (to_end) buffer.upper = order.end();
    if (buffer.upper <= buffer.lower) buffer.upper = buffer.lower + 1;
    uses.from_begin.push_back(from_begin);
    uses.to_end.push_back(to_end);
    out.buffers.push_back(buffer);
  }
  uses.starts.push_back(static_cast<int64_t>(uses.steps.size()));
  if (order.has_matrix() && !ListExactConflicts(order, uses, &out.conflicts))
    return FindLifetimes<Lifetimes>(run, values, in_place, false);
  return out;
}

}  // namespace detail

// Errors (kInvalidArgument) name the edge, value or option: an index out of range, an edge against
// the stored order, a view outside what it views, a user that is not ordered after the producer, an
// in-place option whose step does not read the input and make the output.
//
// An in-place option is granted, in the order given, when every other touch of the input's buffer
// completes before the step starts in every legal run, nobody reads the buffer after the run, it is
// planned memory, the output fits, and the step reads the buffer once.
template <class Lifetimes = MemoryLifetimes, class Run = RunOrder, class Value = RunValue,
          class Option = InPlaceOption>
Lifetimes FindLifetimes(const Run& run, const std::vector<Value>& values,
                        const std::vector<Option>& in_place = {},
                        const LifetimeOptions& options = {}) {
  detail::CheckRunOrder(run);
  const bool exact = run.stages.empty() && run.nodes > 0 && run.nodes <= options.exact_nodes;
  return detail::FindLifetimes<Lifetimes>(run, values, in_place, exact);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_LIFETIMES_HPP_
