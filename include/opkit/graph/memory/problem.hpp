// The memory planner's own form of its input: checked, empty buffers left out, sizes and alignments
// in the largest unit that divides them all, time cut into as few sections as tell lifetimes apart.
#ifndef OPKIT_GRAPH_MEMORY_PROBLEM_HPP_
#define OPKIT_GRAPH_MEMORY_PROBLEM_HPP_

#include "opkit/base/error.hpp"
#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The planner's functions are templates over this and what it is made from, so that programs which
// plan no memory do not compile them.
struct MemoryProblem {
  int count = 0;               // buffers that have a size
  std::vector<int> buffer;     // of each, its index in the input
  std::vector<int> size;       // in units
  std::vector<int> alignment;  // in units, a power of two
  std::vector<int> lower;      // sections [lower, upper) in which it is live
  std::vector<int> upper;
  int sections = 0;
  std::vector<int> total;       // of each section, units live in it
  std::vector<int64_t> starts;  // conflicts, as in MemoryConflicts; empty where there are too many
  std::vector<int> others;
  bool spans_decide = true;  // conflicts are those of the spans, no others
  int64_t pairs = 0;         // how many conflicts there are
  int64_t unit = 1;          // bytes
  int64_t rounding = 1;      // bytes that every size was rounded up to
  int bound = 0;             // units: no arena is smaller
  int64_t bound_bytes = 0;
  int64_t naive_bytes = 0;
};

// Stable; the keys stay where they are.
template <class Key>
void SortIndices(std::vector<int>& indices, const std::vector<Key>& keys) {
  std::vector<int> merged(indices.size());
  const size_t n = indices.size();
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t i = begin, middle = begin + width < n ? begin + width : n, j = middle;
      const size_t left = middle, end = middle + width < n ? middle + width : n;
      for (size_t k = begin; k < end; ++k) {
        const bool right = i == left || (j < end && keys[static_cast<size_t>(indices[j])] <
                                                        keys[static_cast<size_t>(indices[i])]);
        merged[k] = indices[right ? j++ : i++];
      }
    }
    indices.swap(merged);
  }
}

inline int64_t GreatestCommonDivisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Throws for a buffer that cannot be planned; the buffers' smallest alignment otherwise.
template <class Interval>
int64_t CheckMemoryIntervals(const std::vector<Interval>& intervals) {
  if (intervals.size() > 1'000'000'000)
    Throw(ErrorCode::kOutOfRange, "expected at most 1000000000 buffers, found ", intervals.size());
  int64_t smallest = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& buffer = intervals[i];
    if (buffer.lower >= buffer.upper)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " is live in [", buffer.lower, ", ",
            buffer.upper, "): expected lower < upper");
    if (buffer.size < 0)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " has ", buffer.size,
            " bytes: expected 0 or more");
    if (buffer.alignment <= 0 || (buffer.alignment & (buffer.alignment - 1)) != 0)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " has alignment ", buffer.alignment,
            ": expected a power of two");
    if (buffer.size > 0 && (smallest == 0 || buffer.alignment < smallest))
      smallest = buffer.alignment;
  }
  return smallest == 0 ? 1 : smallest;
}

// Sizes, alignments and their unit.
template <class Interval, class Problem>
void MeasureBuffers(const std::vector<Interval>& intervals, Problem* problem) {
  const int64_t rounding = problem->rounding = CheckMemoryIntervals(intervals);
  int64_t unit = 0, worst = 0;  // worst: with the padding before each
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& buffer = intervals[i];
    if (buffer.size == 0) continue;
    problem->buffer.push_back(static_cast<int>(i));
    int64_t padded = 0;
    if (__builtin_add_overflow(buffer.size, rounding - 1, &padded) ||
        __builtin_add_overflow(worst, buffer.alignment - rounding, &worst) ||
        __builtin_add_overflow(worst, padded &= -rounding, &worst))
      Throw(ErrorCode::kOutOfRange, "the buffers' sizes add up to more than an int64 holds at ",
            "buffer ", i, " of ", buffer.size, " bytes");
    problem->naive_bytes += padded;
    unit = GreatestCommonDivisor(padded, unit);
  }
  problem->count = static_cast<int>(problem->buffer.size());
  if (problem->count == 0) return;
  for (int i : problem->buffer) {
    const int64_t alignment = intervals[static_cast<size_t>(i)].alignment;
    if (unit % alignment != 0) unit = GreatestCommonDivisor(unit, alignment);
  }
  // Offsets are int: where the exact unit is too small for that, sizes are rounded up to a larger
  // one, by less than 2^-28 of them all.
  while (worst / unit + problem->count >= int64_t{1} << 29) unit *= 2;
  problem->unit = unit;
  for (int i : problem->buffer) {
    const Interval& buffer = intervals[static_cast<size_t>(i)];
    const int64_t alignment = buffer.alignment / unit;
    problem->size.push_back(static_cast<int>((buffer.size - 1) / unit + 1));
    problem->alignment.push_back(static_cast<int>(alignment > 1 ? alignment : 1));
  }
}

// Sections end where a buffer ends after another began: every other moment's live set is part of
// one of theirs.
template <class Interval, class Problem>
void CutSections(const std::vector<Interval>& intervals, Problem* problem) {
  const size_t n = problem->buffer.size();
  std::vector<int64_t> lower, upper;
  std::vector<int> begins, ends;
  for (size_t i = 0; i < n; ++i) {
    const Interval& buffer = intervals[static_cast<size_t>(problem->buffer[i])];
    lower.push_back(buffer.lower);
    upper.push_back(buffer.upper);
    begins.push_back(static_cast<int>(i));
  }
  ends = begins;
  SortIndices(begins, lower);
  SortIndices(ends, upper);
  problem->lower.resize(n);
  problem->upper.resize(n);
  int live = 0;
  bool began = false;
  int64_t live_bytes = 0;
  for (size_t b = 0, e = 0; e < n;) {
    const auto end = static_cast<size_t>(ends[e]);
    if (b < n && lower[static_cast<size_t>(begins[b])] < upper[end]) {
      const auto begin = static_cast<size_t>(begins[b++]);
      problem->lower[begin] = problem->sections;
      problem->pairs += live++;
      live_bytes +=
          (intervals[static_cast<size_t>(problem->buffer[begin])].size + problem->rounding - 1) &
          -problem->rounding;
      problem->bound_bytes = live_bytes > problem->bound_bytes ? live_bytes : problem->bound_bytes;
      began = true;
    } else {
      if (began) ++problem->sections;
      began = false;
      problem->upper[end] = problem->sections;
      --live;
      live_bytes -=
          (intervals[static_cast<size_t>(problem->buffer[end])].size + problem->rounding - 1) &
          -problem->rounding;
      ++e;
    }
  }
  problem->total.assign(static_cast<size_t>(problem->sections) + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    problem->total[static_cast<size_t>(problem->lower[i])] += problem->size[i];
    problem->total[static_cast<size_t>(problem->upper[i])] -= problem->size[i];
  }
  for (size_t s = 0; s < problem->total.size(); ++s) {
    if (s > 0) problem->total[s] += problem->total[s - 1];
    problem->bound = problem->total[s] > problem->bound ? problem->total[s] : problem->bound;
  }
}

// The conflicts of overlapping spans as lists. Costs time and space by their number.
template <class Problem>
void ListConflicts(Problem* problem) {
  const size_t n = problem->buffer.size();
  std::vector<int> order, live;
  for (size_t i = 0; i < n; ++i) order.push_back(static_cast<int>(i));
  SortIndices(order, problem->lower);
  problem->starts.assign(n + 1, 0);
  // Twice the same sweep: first it counts, then it fills.
  for (const bool fill : {false, true}) {
    live.clear();
    for (int i : order) {
      size_t kept = 0;
      for (int other : live) {
        if (problem->upper[static_cast<size_t>(other)] <= problem->lower[static_cast<size_t>(i)])
          continue;
        live[kept++] = other;
        int64_t& at = problem->starts[static_cast<size_t>(i)];
        int64_t& at_other = problem->starts[static_cast<size_t>(other)];
        if (fill) {
          problem->others[static_cast<size_t>(--at)] = other;
          problem->others[static_cast<size_t>(--at_other)] = i;
        } else {
          ++at;
          ++at_other;
        }
      }
      live.resize(kept);
      live.push_back(i);
    }
    if (fill) break;
    int64_t sum = 0;  // then starts[i] is the end of i's list, and filling walks down to its start
    for (int64_t& start : problem->starts) start = sum += start;
    problem->others.resize(static_cast<size_t>(sum));
  }
}

// Each list's reverse: who lists i. The lists come out in ascending order.
template <class Conflicts>
Conflicts TransposeConflicts(const Conflicts& conflicts) {
  Conflicts out;
  const size_t n = conflicts.starts.size() - 1;
  out.starts.assign(n + 1, 0);
  out.others.resize(conflicts.others.size());
  for (int other : conflicts.others) ++out.starts[static_cast<size_t>(other)];
  int64_t sum = 0;
  for (int64_t& start : out.starts) start = sum += start;
  for (size_t i = n; i-- > 0;)
    for (int64_t at = conflicts.starts[i + 1]; at-- > conflicts.starts[i];) {
      const auto other = static_cast<size_t>(conflicts.others[static_cast<size_t>(at)]);
      out.others[static_cast<size_t>(--out.starts[other])] = static_cast<int>(i);
    }
  return out;
}

template <class Conflicts>
void CheckConflicts(size_t n, const Conflicts& conflicts) {
  if (conflicts.starts.size() != n + 1 || conflicts.starts[0] != 0 ||
      conflicts.starts[n] != static_cast<int64_t>(conflicts.others.size()))
    Throw(ErrorCode::kInvalidArgument, "expected the starts of ", n, " conflict lists and their ",
          "end, from 0 to ", conflicts.others.size(), "; found ", conflicts.starts.size(),
          " numbers");
  for (size_t i = 0; i < n; ++i)
    if (conflicts.starts[i] > conflicts.starts[i + 1])
      Throw(ErrorCode::kInvalidArgument, "the conflict list of buffer ", i, " ends at ",
            conflicts.starts[i + 1], ", before its start at ", conflicts.starts[i]);
  for (size_t i = 0; i < n; ++i)
    for (int64_t at = conflicts.starts[i]; at < conflicts.starts[i + 1]; ++at) {
      const int other = conflicts.others[static_cast<size_t>(at)];
      if (other < 0 || static_cast<size_t>(other) >= n || static_cast<size_t>(other) == i)
        Throw(ErrorCode::kInvalidArgument, "buffer ", i, " lists a conflict with buffer ", other,
              ": expected another of the ", n, " buffers");
    }
}

// A set of buffers that are all in conflict with each other can be larger than any live set of the
// given spans: grows the largest of these by whoever conflicts with all of it.
template <class Problem>
void RaiseBound(Problem* problem) {
  const size_t n = problem->buffer.size();
  int peak = 0;
  for (int s = 1; s < problem->sections; ++s)
    if (problem->total[static_cast<size_t>(s)] > problem->total[static_cast<size_t>(peak)])
      peak = s;
  std::vector<int> met(n, 0);  // members in conflict with it; -1 for a member
  int members = 0;
  const auto join = [&](size_t i) {
    met[i] = -1;
    ++members;
    for (int64_t at = problem->starts[i]; at < problem->starts[i + 1]; ++at) {
      int& count = met[static_cast<size_t>(problem->others[static_cast<size_t>(at)])];
      if (count >= 0) ++count;
    }
  };
  for (size_t i = 0; i < n; ++i)
    if (problem->lower[i] <= peak && peak < problem->upper[i]) join(i);
  for (;;) {
    size_t best = n;
    for (size_t i = 0; i < n; ++i)
      if (met[i] == members && (best == n || problem->size[i] > problem->size[best])) best = i;
    if (best == n) return;
    join(best);
    problem->bound += problem->size[best];
  }
}

// Checked conflicts, renumbered without the empty buffers.
template <class Conflicts, class Problem>
void TakeConflicts(const Conflicts& conflicts, size_t n, Problem* problem) {
  CheckConflicts(n, conflicts);
  const Conflicts reverse = TransposeConflicts(conflicts);
  const Conflicts sorted = TransposeConflicts(reverse);
  std::vector<int> number(n, -1);
  for (size_t i = 0; i < problem->buffer.size(); ++i)
    number[static_cast<size_t>(problem->buffer[i])] = static_cast<int>(i);
  int64_t overlapping = 0;
  problem->starts.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    int last = -1;
    for (int64_t at = sorted.starts[i]; at < sorted.starts[i + 1]; ++at) {
      const int other = sorted.others[static_cast<size_t>(at)];
      if (sorted.starts[i + 1] != reverse.starts[i + 1] ||
          reverse.others[static_cast<size_t>(at)] != other)
        Throw(ErrorCode::kInvalidArgument, "expected every conflict on the lists of both buffers; ",
              "the lists of buffer ", i, " and its partners do not agree");
      if (number[i] < 0 || number[static_cast<size_t>(other)] < 0 || other == last) continue;
      last = other;
      const auto a = static_cast<size_t>(number[i]);
      const auto b = static_cast<size_t>(number[static_cast<size_t>(other)]);
      problem->others.push_back(number[static_cast<size_t>(other)]);
      if (problem->lower[a] < problem->upper[b] && problem->lower[b] < problem->upper[a])
        ++overlapping;
    }
    if (number[i] >= 0) problem->starts.push_back(static_cast<int64_t>(problem->others.size()));
  }
  if (overlapping != 2 * problem->pairs)
    Throw(ErrorCode::kInvalidArgument, "the spans of ", problem->pairs, " pairs of buffers ",
          "overlap, but only ", overlapping / 2, " of these pairs are listed as conflicts");
  const auto listed = static_cast<int64_t>(problem->others.size()) / 2;
  problem->spans_decide = listed == problem->pairs;
  problem->pairs = listed;
  if (!problem->spans_decide) RaiseBound(problem);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_PROBLEM_HPP_
