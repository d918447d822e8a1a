// Greedy placing for the memory planner: buffers in some order, each at the lowest offset that is
// free. No one order wins everywhere, so several are tried.
#ifndef OPKIT_GRAPH_MEMORY_GREEDY_HPP_
#define OPKIT_GRAPH_MEMORY_GREEDY_HPP_

#include "opkit/graph/memory_problem.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline int AlignUnits(int offset, int alignment) { return (offset + alignment - 1) & -alignment; }

// The best placing found so far.
struct Placing {
  std::vector<int> offsets;
  int height = 0;
  const char* method = nullptr;  // null: none yet
};

inline void KeepIfLower(const std::vector<int>& offsets, int height, const char* method,
                        Placing* best) {
  if (best->method && height >= best->height) return;
  best->offsets = offsets;
  best->height = height;
  best->method = method;
}

// Places buffers one by one at the lowest offset where they fit between those of their conflict
// list that were placed before: O(conflicts), with gaps below the top filled.
class LowestFit {
 public:
  explicit LowestFit(const MemoryProblem& problem) : problem_(problem) {}

  // Returns the height; `offsets` is written whole.
  int Place(const std::vector<int>& order, std::vector<int>* offsets) {
    offsets->assign(order.size(), -1);
    int height = 0;
    for (int buffer : order) {
      const auto b = static_cast<size_t>(buffer);
      taken_.clear();
      for (int64_t at = problem_.starts[b]; at < problem_.starts[b + 1]; ++at) {
        const auto other = static_cast<size_t>(problem_.others[static_cast<size_t>(at)]);
        const int offset = (*offsets)[other];
        // Offset and end in one number, so that sorting by offset moves both.
        if (offset >= 0) taken_.push_back(int64_t{offset} << 32 | (offset + problem_.size[other]));
      }
      SortTaken();
      int free = 0;
      for (int64_t span : taken_) {
        if (static_cast<int>(span >> 32) - free >= problem_.size[b]) break;
        const int end = static_cast<int>(span & 0xffffffff);
        if (end > free) free = AlignUnits(end, problem_.alignment[b]);
      }
      (*offsets)[b] = free;
      height = free + problem_.size[b] > height ? free + problem_.size[b] : height;
    }
    return height;
  }

 private:
  // Shell sort: the lists are short, tens of spans.
  void SortTaken() {
    for (size_t gap : {701u, 301u, 132u, 57u, 23u, 10u, 4u, 1u})
      for (size_t i = gap; i < taken_.size(); ++i) {
        const int64_t span = taken_[i];
        size_t j = i;
        for (; j >= gap && taken_[j - gap] > span; j -= gap) taken_[j] = taken_[j - gap];
        taken_[j] = span;
      }
  }

  const MemoryProblem& problem_;
  std::vector<int64_t> taken_;
};

// The top of what is placed, over time: raising a span and asking for its highest point cost
// O(log sections), whatever is placed. For more conflicts than can be listed.
class Skyline {
 public:
  explicit Skyline(int sections) {
    while (leaves_ < static_cast<size_t>(sections)) leaves_ *= 2;
    highest_.assign(2 * leaves_, 0);
    floor_.assign(2 * leaves_, 0);
  }
  int Highest(int lower, int upper) const { return Highest(1, 0, leaves_, Span(lower, upper)); }
  // To a height that is not below Highest(lower, upper).
  void Raise(int lower, int upper, int height) { Raise(1, 0, leaves_, Span(lower, upper), height); }

 private:
  struct Span {
    Span(int l, int u) : lower(static_cast<size_t>(l)), upper(static_cast<size_t>(u)) {}
    size_t lower, upper;
  };
  // highest_ of a node: over its span, from within it; floor_: what its whole span was raised to.
  int Highest(size_t node, size_t begin, size_t end, Span span) const {
    if (span.upper <= begin || end <= span.lower) return 0;
    if (span.lower <= begin && end <= span.upper) return highest_[node];
    const size_t middle = (begin + end) / 2;
    const int left = Highest(2 * node, begin, middle, span);
    const int right = Highest(2 * node + 1, middle, end, span);
    const int inside = left > right ? left : right;
    return inside > floor_[node] ? inside : floor_[node];
  }
  void Raise(size_t node, size_t begin, size_t end, Span span, int height) {
    if (span.upper <= begin || end <= span.lower) return;
    if (height > highest_[node]) highest_[node] = height;
    if (span.lower <= begin && end <= span.upper) {
      floor_[node] = height;
      return;
    }
    const size_t middle = (begin + end) / 2;
    Raise(2 * node, begin, middle, span, height);
    Raise(2 * node + 1, middle, end, span, height);
  }

  size_t leaves_ = 1;
  std::vector<int> highest_, floor_;
};

inline int PlaceOnSkyline(const MemoryProblem& problem, const std::vector<int>& order,
                          std::vector<int>* offsets) {
  Skyline skyline(problem.sections);
  offsets->assign(order.size(), 0);
  int height = 0;
  for (int buffer : order) {
    const auto b = static_cast<size_t>(buffer);
    const int offset =
        AlignUnits(skyline.Highest(problem.lower[b], problem.upper[b]), problem.alignment[b]);
    skyline.Raise(problem.lower[b], problem.upper[b], offset + problem.size[b]);
    (*offsets)[b] = offset;
    height = offset + problem.size[b] > height ? offset + problem.size[b] : height;
  }
  return height;
}

// As an allocator at run time would: in the order of begin, into the smallest gap that fits, below
// what is live. O(live buffers) for each.
inline int PlaceInTime(const MemoryProblem& problem, const std::vector<int>& by_lower,
                       std::vector<int>* offsets) {
  offsets->assign(by_lower.size(), 0);
  std::vector<int> live;  // in the order of offset
  int height = 0;
  for (int buffer : by_lower) {
    const auto b = static_cast<size_t>(buffer);
    const int size = problem.size[b];
    int best = -1, best_gap = 0, free = 0;
    size_t kept = 0, place = 0;
    for (int other : live) {
      const auto o = static_cast<size_t>(other);
      if (problem.upper[o] <= problem.lower[b]) continue;
      const int start = AlignUnits(free, problem.alignment[b]);
      const int gap = (*offsets)[o] - start;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = start;
        best_gap = gap;
        place = kept;
      }
      free = (*offsets)[o] + problem.size[o];
      live[kept++] = other;
    }
    if (best < 0) {
      best = AlignUnits(free, problem.alignment[b]);
      place = kept;
    }
    live.resize(kept);
    live.insert(live.begin() + static_cast<std::ptrdiff_t>(place), buffer);
    (*offsets)[b] = best;
    height = best + size > height ? best + size : height;
  }
  return height;
}

// By descending key; equal ones by descending size.
inline std::vector<int> OrderBy(const MemoryProblem& problem, const std::vector<int64_t>& keys) {
  std::vector<int> order;
  std::vector<int64_t> descending;
  for (int i = 0; i < problem.count; ++i) {
    order.push_back(i);
    descending.push_back(-int64_t{problem.size[static_cast<size_t>(i)]});
  }
  SortIndices(order, descending);
  for (size_t i = 0; i < keys.size(); ++i) descending[i] = -keys[i];
  SortIndices(order, descending);
  return order;
}

struct GreedyOrder {
  const char* name;
  std::vector<int> order;
};

// Work that the portfolio may do, in conflicts looked at; about 5 ns each.
inline constexpr int64_t kPortfolioWork = 60'000'000;

// Several orders, the best kept; stops at the lower bound.
inline void TryPortfolio(const MemoryProblem& problem, int enough, Placing* best) {
  const auto n = static_cast<size_t>(problem.count);
  std::vector<int64_t> length(n), area(n), size(n), start(n), peak(n), crowd(n);
  for (size_t i = 0; i < n; ++i) {
    size[i] = problem.size[i];
    length[i] = problem.upper[i] - problem.lower[i];
    area[i] = size[i] * length[i];
    start[i] = -problem.lower[i];
  }
  std::vector<int> offsets;
  int64_t work = 0;
  const auto done = [&] { return best->method && best->height <= enough; };
  if (problem.spans_decide && problem.pairs <= 8 * kPortfolioWork) {
    const int height = PlaceInTime(problem, OrderBy(problem, start), &offsets);
    KeepIfLower(offsets, height, "greedy in time", best);
    work += problem.pairs / 2;
  }
  const bool listed = !problem.starts.empty();
  if (listed) {
    for (size_t i = 0; i < n; ++i)
      for (int64_t at = problem.starts[i]; at < problem.starts[i + 1]; ++at)
        crowd[i] += problem.size[static_cast<size_t>(problem.others[static_cast<size_t>(at)])];
  }
  if (problem.spans_decide && problem.pairs <= kPortfolioWork) {
    for (size_t i = 0; i < n; ++i)
      for (int s = problem.lower[i]; s < problem.upper[i]; ++s) {
        const int64_t total = problem.total[static_cast<size_t>(s)];
        peak[i] = total > peak[i] ? total : peak[i];
      }
  }
  LowestFit fit(problem);
  const auto attempt = [&](const char* name, const std::vector<int64_t>& keys) {
    if (done() || work > kPortfolioWork) return;
    const std::vector<int> order = OrderBy(problem, keys);
    const int height =
        listed ? fit.Place(order, &offsets) : PlaceOnSkyline(problem, order, &offsets);
    work += listed ? 2 * problem.pairs + 10 * problem.count : 100 * problem.count;
    KeepIfLower(offsets, height, name, best);
  };
  attempt("greedy by size", size);
  attempt("greedy by lifetime", length);
  attempt("greedy by area", area);
  attempt("greedy by crowd", crowd);
  attempt("greedy by peak", peak);
  attempt("greedy by start", start);
  // Padding is least where the coarsest alignments lie lowest.
  std::vector<int64_t> alignment(problem.alignment.begin(), problem.alignment.end());
  attempt("greedy by alignment", alignment);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_GREEDY_HPP_
