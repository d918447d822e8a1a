// Definitions of FindLifetimes: the order of steps, values merged into buffers, their conflicts.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_LIFETIMES_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_LIFETIMES_IPP_

#include <algorithm>
#include <bit>

#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/bit_matrix.hpp"
#include "opkit/graph/memory/flat_lists.hpp"
#include "opkit/graph/memory/lifetimes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int64_t kMostExactConflicts = 8'000'000;

// The order of steps: Precedes(u, v) is true if step u has completed before step v starts, in every
// legal run. The result may be false if the order is not known, but is never wrongly true.
class StepOrder {
 public:
  StepOrder(const RunOrder& run, bool exact)
      : run_(run), predecessors_(Index(run.nodes), [&](auto add) {
          for (size_t e = run.after.size(); e-- > 0;) add(run.after[e], run.before[e]);
        }) {
    if (!run.stages.empty()) {
      ClockByStages();
    } else if (exact) {
      before_ = BitMatrix(Index(run.nodes), Index(run.nodes));
      for (int v = 0; v < run.nodes; ++v) {
        start_.push_back(v);
        done_.push_back(v + 1);
        for (int before : predecessors_.of(v)) {
          before_.Include(v, before);
          before_.Set(v, before);
        }
      }
      end_ = run.nodes;
    } else {
      ClockByLongestPath();
    }
  }

  bool Precedes(int u, int v) const {
    if (has_matrix()) return before_.Get(v, u);
    return done_[u] <= start_[v] || HasPath(u, v);
  }
  bool has_matrix() const { return words() > 0; }
  size_t words() const { return before_.words(); }
  // Returns the steps that precede v, as bits. Call it only if has_matrix() is true.
  const uint64_t* Before(int v) const { return before_.row(v); }

  // Return the times of step v. Without a matrix, done(u) <= start(v) only if u precedes v; with a
  // matrix, the times are those of the stored order.
  int64_t start(int v) const { return start_[v]; }
  int64_t done(int v) const { return done_[v]; }
  // Return a time before every step, and a time after every step.
  int64_t begin() const { return -1; }
  int64_t end() const { return end_; }

 private:
  // Sets the times from the stages. A synchronous step is done when its stage is done. An
  // asynchronous step is done when a successor has started. HasPath finds the order inside a stage.
  void ClockByStages() {
    const int n = run_.nodes;
    end_ = n == 0 ? 0 : int64_t{run_.stages.back()} + 1;
    for (int v = 0; v < n; ++v) {
      start_.push_back(run_.stages[v]);
      const bool asynchronous = !run_.asynchronous.empty() && run_.asynchronous[v] != 0;
      done_.push_back(asynchronous ? end_ : int64_t{run_.stages[v]} + 1);
    }
    const auto alone = [&](int v) {
      return (v == 0 || run_.stages[v - 1] != run_.stages[v]) &&
             (v + 1 == n || run_.stages[v + 1] != run_.stages[v]);
    };
    for (size_t e = 0; e < run_.before.size(); ++e) {
      const int after = run_.after[e];
      const int64_t done = start_[after] + (alone(after) ? 0 : 1);
      int64_t& known = done_[run_.before[e]];
      if (done < known && done > start_[run_.before[e]]) known = done;
    }
  }

  // Sets the times from the longest path, whose steps are the ticks. A step off the path starts
  // after the last tick that precedes it and is done before the first tick that it precedes.
  void ClockByLongestPath() {
    const int n = run_.nodes;
    IndexedVector<int> depth(Index(n), 0), via(Index(n), -1), tick(Index(n), -1);
    int last = 0;
    for (int v = 0; v < n; ++v) {
      for (int u : predecessors_.of(v)) {
        if (depth[u] < depth[v]) continue;
        depth[v] = depth[u] + 1;
        via[v] = u;
      }
      if (depth[v] > depth[last]) last = v;
    }
    if (n == 0) return;
    const int ticks = depth[last] + 1;
    for (int v = last; v >= 0; v = via[v]) tick[v] = depth[v];
    end_ = 2 * int64_t{ticks};
    start_.assign(depth.size(), -1);
    done_.assign(depth.size(), end_);
    for (int v = 0; v < n; ++v) {
      for (int u : predecessors_.of(v)) {
        const int64_t after = tick[u] >= 0 ? 2 * int64_t{tick[u]} + 1 : start_[u];
        start_[v] = (std::max)(start_[v], after);
      }
      if (tick[v] >= 0) start_[v] = 2 * int64_t{tick[v]};
    }
    for (int v = n - 1; v >= 0; --v) {
      if (tick[v] >= 0) done_[v] = 2 * int64_t{tick[v]} + 1;
      const int64_t before = tick[v] >= 0 ? 2 * int64_t{tick[v]} : done_[v];
      for (int u : predecessors_.of(v)) done_[u] = (std::min)(done_[u], before);
    }
  }

  // Follows edges backwards from v. Stops after kMostVisits and then returns false.
  bool HasPath(int u, int v) const {
    constexpr size_t kMostVisits = 256;
    if (u >= v) return false;
    std::vector<int> visits(1, v);
    for (size_t i = 0; i < visits.size(); ++i)
      for (int before : predecessors_.of(visits[i])) {
        if (before == u) return true;
        if (before > u && visits.size() < kMostVisits) visits.push_back(before);
      }
    return false;
  }

  const RunOrder& run_;
  const FlatLists predecessors_;  // predecessors of each step
  IndexedVector<int64_t> start_, done_;
  int64_t end_ = 0;
  BitMatrix before_;  // [v] holds the steps that precede v; empty unless the order is exact
};

inline void CheckRunOrder(const RunOrder& run) {
  if (run.nodes < 0)
    Throw(ErrorCode::kInvalidArgument, "expected 0 or more steps, found ", run.nodes);
  const size_t n = Index(run.nodes);
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

inline void CheckRunValue(const RunOrder& run, const IndexedVector<RunValue>& values, size_t i) {
  const RunValue& value = values[i];
  if (value.bytes < 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has ", value.bytes,
          " bytes: expected 0 or more");
  if (value.alignment <= 0 || (value.alignment & (value.alignment - 1)) != 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has alignment ", value.alignment,
          ": expected a power of two");
  if (value.producer < -1 || value.producer >= run.nodes)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is made by step ", value.producer,
          ": expected one of the ", run.nodes,
          " steps, or -1 for a value that is there before the run");
  for (int user : value.users)
    if (user < 0 || user >= run.nodes)
      Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
            ": expected one of the ", run.nodes, " steps");
  if (value.view_of < 0) return;
  if (Index(value.view_of) >= values.size())
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of value ", value.view_of,
          ": expected one of the ", values.size(), " values");
  const int64_t viewed = values[value.view_of].bytes;
  if (value.view_offset < 0 || value.view_offset > viewed ||
      value.bytes > viewed - value.view_offset)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " views ", value.bytes, " bytes from byte ",
          value.view_offset, " of value ", value.view_of, ", which has ", viewed, " bytes");
}

// Merges values into buffers. A root is a value that is no view. Its members are its views and the
// values that were granted its bytes. Members that joined by grants follow each other: every touch
// of one member precedes the next granted step. So a new step is compared only with the last
// granted step and the members that joined then, and chains cost linear time.
class ValueMerger {
 public:
  ValueMerger(const RunOrder& run, const IndexedVector<RunValue>& values, const StepOrder& order)
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
      size_t hops = 0;
      int at = static_cast<int>(i);
      for (; values[at].view_of >= 0; at = values[at].view_of) {
        if (Index(values[at].view_of) >= n || ++hops > n)
          Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of itself");
        offset_[i] += values[at].view_offset;
      }
      root_[i] = at;
      members_[at].push_back(static_cast<int>(i));
    }
  }

  // Lets the option's output share the input's buffer if that is safe. Returns false otherwise.
  bool Grant(const InPlaceOption& option, size_t index) {
    CheckOption(option, index);
    const int input = option.input, output = option.output;
    const int kept = root_[input], merged = root_[output];
    if (kept == merged || merged != output || values_[kept].external || values_[merged].external)
      return false;
    if (values_[output].bytes > values_[input].bytes ||
        offset_[input] % values_[output].alignment != 0)
      return false;
    if (last_step_[kept] >= 0 && !order_.Precedes(last_step_[kept], option.node)) return false;
    int reads = 0;
    for (size_t at = last_joined_[kept]; at < members_[kept].size(); ++at) {
      const RunValue& value = values_[members_[kept][at]];
      if (value.kept || value.external) return false;
      for (int user : value.users)
        if (user == option.node)
          ++reads;
        else if (!order_.Precedes(user, option.node))
          return false;
      if (value.producer >= 0 && !order_.Precedes(value.producer, option.node)) return false;
    }
    if (reads != 1) return false;
    for (int i : members_[merged]) {
      const RunValue& value = values_[i];
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
      root_[i] = kept;
      offset_[i] += offset_[input];
      members_[kept].push_back(i);
    }
    members_[merged].clear();
    return true;
  }

  const std::vector<int>& members(int root) const { return members_[root]; }
  int64_t offset(int value) const { return offset_[value]; }

 private:
  void CheckUsers(size_t i) const {
    const RunValue& value = values_[i];
    if (value.producer < 0) return;
    for (int user : value.users)
      if (user < value.producer ||
          (order_.has_matrix() && user != value.producer && !order_.Precedes(value.producer, user)))
        Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
              ", which no edge orders after step ", value.producer, ", which makes it");
  }
  void CheckOption(const InPlaceOption& option, size_t index) const {
    const auto count = static_cast<int>(values_.size());
    if (option.input < 0 || option.input >= count || option.output < 0 || option.output >= count)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, " is of values ", option.input,
            " and ", option.output, ": expected two of the ", count, " values");
    const std::vector<int>& users = values_[option.input].users;
    if (std::find(users.begin(), users.end(), option.node) == users.end() ||
        values_[option.output].producer != option.node)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, ": expected step ", option.node,
            " to read value ", option.input, " and to make value ", option.output);
  }

  const IndexedVector<RunValue>& values_;
  const StepOrder& order_;
  IndexedVector<int> root_;
  IndexedVector<int64_t> offset_;  // offset of each value in its buffer, which values may share
  IndexedVector<std::vector<int>> members_;
  IndexedVector<int> last_step_;  // by root: the step of the last grant; -1: nothing was granted
  // By root: index in its members_ of the first member that joined last.
  IndexedVector<size_t> last_joined_;
};

// The steps that touch each buffer, and flags: live from the run's begin, live to its end.
struct BufferUses {
  FlatLists steps;
  std::vector<uint8_t> from_begin, to_end;
};

// Lists the pairs of buffers of which neither precedes the other. A buffer precedes another one if
// all steps that touch the first have completed before any step that touches the second starts.
// Returns false if there are too many conflicts to list.
inline bool ListExactConflicts(const StepOrder& order, const BufferUses& uses,
                               MemoryConflicts* conflicts) {
  const size_t n = uses.from_begin.size(), words = order.words();
  BitMatrix precedes(n, n);               // [b] holds the buffers that precede buffer b
  IndexedVector<uint64_t> common(words);  // steps that precede every touch of b
  const auto all_in_common = [&](size_t a) {
    for (int step : uses.steps.of(a))
      if (!((common[Index(step) / 64] >> (step % 64)) & 1)) return false;
    return true;
  };
  for (size_t b = 0; b < n; ++b) {
    if (uses.from_begin[b]) continue;
    common.assign(words, ~uint64_t{0});
    for (int step : uses.steps.of(b)) {
      const uint64_t* before = order.Before(step);
      for (size_t w = 0; w < words; ++w) common[w] &= before[w];
    }
    for (size_t a = 0; a < n; ++a) {
      if (uses.to_end[a] || a == b) continue;
      if (all_in_common(a)) precedes.Set(b, a);
    }
  }
  for (size_t b = 0; b < n; ++b)
    for (size_t a = 0; a < n; ++a)
      if (precedes.Get(b, a)) precedes.Set(a, b);
  int64_t apart = 0;
  for (uint64_t word : precedes.bits()) apart += std::popcount(word);
  const auto all = static_cast<int64_t>(n) * (static_cast<int64_t>(n) - 1);
  if (all - apart > 2 * kMostExactConflicts) return false;
  conflicts->others.reserve(Index(all - apart));
  for (size_t b = 0; b < n; ++b) {
    conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
    for (size_t a = 0; a < n; ++a)
      if (a != b && !precedes.Get(b, a)) conflicts->others.push_back(static_cast<int>(a));
  }
  conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
  return true;
}

inline MemoryLifetimes BuildLifetimes(const RunOrder& run, const IndexedVector<RunValue>& values,
                                      const std::vector<InPlaceOption>& in_place, bool exact) {
  const StepOrder order(run, exact);
  ValueMerger merger(run, values, order);
  MemoryLifetimes out;
  for (size_t i = 0; i < in_place.size(); ++i)
    out.granted.push_back(merger.Grant(in_place[i], i) ? 1 : 0);
  out.exact = exact || !run.stages.empty();
  for (size_t v = 1; v < run.stages.size(); ++v)
    if (run.stages[v] == run.stages[v - 1]) out.exact = false;
  out.buffer_of.assign(values.size(), -1);
  out.offset_in_buffer.assign(values.size(), 0);
  BufferUses uses;
  for (int root = 0; root < static_cast<int>(values.size()); ++root) {
    if (merger.members(root).empty() || values[root].external) continue;
    MemoryInterval buffer{order.end(), order.begin(), values[root].bytes, 1};
    uses.steps.starts.push_back(static_cast<int64_t>(uses.steps.items.size()));
    bool from_begin = false, to_end = false;
    for (int m : merger.members(root)) {
      const RunValue& value = values[m];
      out.buffer_of[m] = static_cast<int>(out.buffers.size());
      out.offset_in_buffer[m] = merger.offset(m);
      if (value.view_of < 0 && value.alignment > buffer.alignment)
        buffer.alignment = value.alignment;
      from_begin |= value.producer < 0;
      to_end |= value.kept;
      if (value.producer >= 0) uses.steps.items.push_back(value.producer);
      uses.steps.items.insert(uses.steps.items.end(), value.users.begin(), value.users.end());
    }
    for (size_t at = Index(uses.steps.starts.back()); at < uses.steps.items.size(); ++at) {
      const int step = uses.steps.items[at];
      buffer.lower = (std::min)(buffer.lower, order.start(step));
      buffer.upper = (std::max)(buffer.upper, order.done(step));
    }
    if (from_begin) buffer.lower = order.begin();
    if (to_end) buffer.upper = order.end();
    if (buffer.upper <= buffer.lower) buffer.upper = buffer.lower + 1;
    uses.from_begin.push_back(from_begin);
    uses.to_end.push_back(to_end);
    out.buffers.push_back(buffer);
  }
  uses.steps.starts.push_back(static_cast<int64_t>(uses.steps.items.size()));
  if (order.has_matrix() && !ListExactConflicts(order, uses, &out.conflicts))
    return BuildLifetimes(run, values, in_place, false);
  return out;
}

OPKIT_INLINE MemoryLifetimes FindLifetimes(const RunOrder& run,
                                           const IndexedVector<RunValue>& values,
                                           const std::vector<InPlaceOption>& in_place,
                                           const LifetimeOptions& options) {
  CheckRunOrder(run);
  const bool exact = run.stages.empty() && run.nodes > 0 && run.nodes <= options.exact_nodes;
  return BuildLifetimes(run, values, in_place, exact);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_IMPL_LIFETIMES_IPP_
