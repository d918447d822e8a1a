// Definitions: makes a MemoryProblem from buffers and their conflicts.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_PROBLEM_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_PROBLEM_IPP_

#include <algorithm>
#include <numeric>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/problem.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE IndexedVector<int64_t> Peaks(const MemoryProblem& problem) {
  IndexedVector<int64_t> peaks;
  for (int i = 0; i < problem.count; ++i)
    peaks.push_back(*std::max_element(problem.total.begin() + problem.lower[i],
                                      problem.total.begin() + problem.upper[i]));
  return peaks;
}

OPKIT_INLINE IndexedVector<int64_t> Lengths(const MemoryProblem& problem) {
  IndexedVector<int64_t> lengths;
  for (int i = 0; i < problem.count; ++i) lengths.push_back(problem.upper[i] - problem.lower[i]);
  return lengths;
}

// Returns the smallest alignment of the buffers. Throws kInvalidArgument for a buffer that cannot
// be planned, kOutOfRange for too many buffers.
inline int64_t CheckMemoryIntervals(const std::vector<MemoryInterval>& intervals) {
  if (intervals.size() > 1'000'000'000)
    Throw(ErrorCode::kOutOfRange, "expected at most 1000000000 buffers, found ", intervals.size());
  int64_t smallest = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const MemoryInterval& buffer = intervals[i];
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

OPKIT_INLINE void MeasureBuffers(const std::vector<MemoryInterval>& intervals,
                                 MemoryProblem* problem) {
  const int64_t rounding = problem->rounding = CheckMemoryIntervals(intervals);
  int64_t unit = 0, worst = 0;  // worst: the sum of sizes, with padding before each
  for (size_t i = 0; i < intervals.size(); ++i) {
    const MemoryInterval& buffer = intervals[i];
    if (buffer.size == 0) continue;
    problem->buffer.push_back(static_cast<int>(i));
    int64_t padded = 0;
    if (__builtin_add_overflow(buffer.size, rounding - 1, &padded) ||
        __builtin_add_overflow(worst, buffer.alignment - rounding, &worst) ||
        __builtin_add_overflow(worst, padded &= -rounding, &worst))
      Throw(ErrorCode::kOutOfRange, "the buffers' sizes add up to more than an int64 holds at ",
            "buffer ", i, " of ", buffer.size, " bytes");
    problem->naive_bytes += padded;
    unit = std::gcd(padded, unit);
  }
  problem->count = static_cast<int>(problem->buffer.size());
  if (problem->count == 0) return;
  for (int i : problem->buffer) {
    const int64_t alignment = intervals[Index(i)].alignment;
    if (unit % alignment != 0) unit = std::gcd(unit, alignment);
  }
  // Offsets are int. If the exact unit is too small for that, sizes are rounded up to a larger one;
  // this adds less than 2^-28 of their sum.
  while (worst / unit + problem->count >= int64_t{1} << 29) unit *= 2;
  problem->unit = unit;
  for (int i : problem->buffer) {
    const MemoryInterval& buffer = intervals[Index(i)];
    problem->size.push_back(static_cast<int>((buffer.size - 1) / unit + 1));
    problem->alignment.push_back(static_cast<int>((std::max)(buffer.alignment / unit, int64_t{1})));
  }
}

OPKIT_INLINE void CutSections(const std::vector<MemoryInterval>& intervals,
                              MemoryProblem* problem) {
  const size_t n = problem->buffer.size();
  IndexedVector<int64_t> lower, upper, bytes;
  for (int i : problem->buffer) {
    const MemoryInterval& buffer = intervals[Index(i)];
    lower.push_back(buffer.lower);
    upper.push_back(buffer.upper);
    bytes.push_back(RoundUp(buffer.size, problem->rounding));
  }
  const std::vector<int> begins = SortedBy(lower), ends = SortedBy(upper);
  problem->lower.resize(n);
  problem->upper.resize(n);
  int live = 0;
  bool began = false;
  int64_t live_bytes = 0;
  for (size_t b = 0, e = 0; e < n;) {
    const int end = ends[e];
    if (b < n && lower[begins[b]] < upper[end]) {
      const int begin = begins[b++];
      problem->lower[begin] = problem->sections;
      problem->pairs += live++;
      live_bytes += bytes[begin];
      problem->bound_bytes = (std::max)(problem->bound_bytes, live_bytes);
      began = true;
    } else {
      if (began) ++problem->sections;
      began = false;
      problem->upper[end] = problem->sections;
      --live;
      live_bytes -= bytes[end];
      ++e;
    }
  }
  IndexedVector<int>& total = problem->total;
  total.assign(Index(problem->sections) + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    total[problem->lower[i]] += problem->size[i];
    total[problem->upper[i]] -= problem->size[i];
  }
  std::partial_sum(total.begin(), total.end(), total.begin());
  problem->bound = *std::max_element(total.begin(), total.end());
}

OPKIT_INLINE void ListConflicts(MemoryProblem* problem) {
  const std::vector<int> order = SortedBy(problem->lower);
  std::vector<int> live;
  problem->conflicts = FlatLists(problem->buffer.size(), [&](auto add) {
    live.clear();
    for (int i : order) {
      std::erase_if(live, [&](int other) { return problem->upper[other] <= problem->lower[i]; });
      for (int other : live) {
        add(i, other);
        add(other, i);
      }
      live.push_back(i);
    }
  });
}

// Returns, for each number, the lists that hold it, in ascending order.
template <class Lists>
FlatLists Transpose(size_t n, const Lists& lists) {
  return FlatLists(n, [&](auto add) {
    for (size_t i = n; i-- > 0;)
      for (int other : lists.of(i)) add(other, i);
  });
}

inline void CheckConflicts(size_t n, const MemoryConflicts& conflicts) {
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
    for (int other : conflicts.of(i))
      if (other < 0 || Index(other) >= n || Index(other) == i)
        Throw(ErrorCode::kInvalidArgument, "buffer ", i, " lists a conflict with buffer ", other,
              ": expected another of the ", n, " buffers");
}

// Raises the lower bound. A set of buffers that all conflict with each other can be larger than any
// live set of the given spans: grows the largest live set by buffers that conflict with all of it.
inline void RaiseBound(MemoryProblem* problem) {
  const size_t n = problem->buffer.size();
  const auto peak = static_cast<int>(
      std::max_element(problem->total.begin(), problem->total.end()) - problem->total.begin());
  // met[i]: the number of members of the set that conflict with buffer i; -1 if i is a member.
  IndexedVector<int> met(n, 0);
  int members = 0;
  const auto join = [&](size_t i) {
    met[i] = -1;
    ++members;
    for (int other : problem->conflicts.of(i))
      if (met[other] >= 0) ++met[other];
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

OPKIT_INLINE void TakeConflicts(const MemoryConflicts& conflicts, size_t n,
                                MemoryProblem* problem) {
  CheckConflicts(n, conflicts);
  const FlatLists reverse = Transpose(n, conflicts);
  const FlatLists sorted = Transpose(n, reverse);
  IndexedVector<int> number(n, -1);
  for (size_t i = 0; i < problem->buffer.size(); ++i)
    number[problem->buffer[i]] = static_cast<int>(i);
  int64_t overlapping = 0;
  IndexedVector<int64_t>& starts = problem->conflicts.starts;
  IndexedVector<int>& items = problem->conflicts.items;
  starts.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    const auto listed = sorted.of(i), listing = reverse.of(i);
    if (!std::equal(listed.begin(), listed.end(), listing.begin(), listing.end()))
      Throw(ErrorCode::kInvalidArgument, "expected every conflict on the lists of both buffers; ",
            "the lists of buffer ", i, " and its partners do not agree");
    if (number[i] < 0) continue;
    const int a = number[i];
    int last = -1;
    for (int other : listed) {
      if (number[other] < 0 || other == std::exchange(last, other)) continue;
      const int b = number[other];
      items.push_back(b);
      if (problem->lower[a] < problem->upper[b] && problem->lower[b] < problem->upper[a])
        ++overlapping;
    }
    starts.push_back(static_cast<int64_t>(items.size()));
  }
  if (overlapping != 2 * problem->pairs)
    Throw(ErrorCode::kInvalidArgument, "the spans of ", problem->pairs, " pairs of buffers ",
          "overlap, but only ", overlapping / 2, " of these pairs are listed as conflicts");
  const auto listed = static_cast<int64_t>(items.size()) / 2;
  problem->spans_decide = listed == problem->pairs;
  problem->pairs = listed;
  if (!problem->spans_decide) RaiseBound(problem);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_IMPL_PROBLEM_IPP_
