// Ways to place buffers one after the other, each as low as possible: between its conflicts, on top
// of them, or as an allocator at run time would.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_

#include "opkit/graph/memory/bit_matrix.hpp"
#include "opkit/graph/memory/problem.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A buffer that was placed.
struct PlacedSpan {
  int offset, end, buffer;
  bool operator<(const PlacedSpan& other) const { return offset < other.offset; }
};
// Sorts by offset. Equal offsets may come in any order: no result of Place depends on it.
inline void SortByOffset(std::vector<PlacedSpan>& spans) { std::sort(spans.begin(), spans.end()); }

// Places buffers one by one, each at the lowest offset where it fits between the placed buffers of
// its conflict list. Fills gaps below the top; O(conflicts).
class LowestFit {
 public:
  explicit LowestFit(const MemoryProblem& problem) : problem_(problem) {}

  // Places all buffers and writes all of `offsets`. Returns the height.
  int Place(const std::vector<int>& order, IndexedVector<int>* offsets) {
    offsets->assign(order.size(), -1);
    int height = 0;
    for (int b : order) {
      taken_.clear();
      for (int other : problem_.conflicts.of(b)) {
        const int offset = (*offsets)[other];
        if (offset >= 0) taken_.push_back({offset, offset + problem_.size[other], other});
      }
      SortByOffset(taken_);
      int free = 0;
      for (const auto& [begin, end, other] : taken_) {
        if (begin - free >= problem_.size[b]) break;
        if (end > free) free = AlignUnits(end, problem_.alignment[b]);
      }
      (*offsets)[b] = free;
      height = (std::max)(height, free + problem_.size[b]);
    }
    return height;
  }

 private:
  const MemoryProblem& problem_;
  std::vector<PlacedSpan> taken_;
};

inline constexpr int kMostInMatrix = 8192;  // 8 MiB of bits

// Places the tail of an order anew on the buffers of its head. Conflicts are a bit matrix and
// placed buffers are kept by offset, so that a scan for a gap has no branch to mispredict.
class MatrixFit {
 public:
  explicit MatrixFit(const MemoryProblem& problem, bool used = true)
      : problem_(problem), count_(Index(problem.count)) {
    if (!used) return;
    conflicts_ = BitMatrix(count_, count_);
    for (size_t i = 0; i < count_; ++i)
      for (int other : problem.conflicts.of(i)) conflicts_.Set(i, other);
  }

  // Places order[first] and the buffers behind it; the buffers before it lie at `offsets`. Returns
  // the height, or -1 as soon as the height is above `limit`.
  int Place(const std::vector<int>& order, size_t first, int limit, IndexedVector<int>* offsets) {
    placed_.clear();
    int height = 0;
    for (size_t at = 0; at < first; ++at) {
      const int b = order[at], end = (*offsets)[b] + problem_.size[b];
      placed_.push_back({(*offsets)[b], end, b});
      height = (std::max)(height, end);
    }
    SortByOffset(placed_);
    for (size_t at = first; at < count_; ++at) {
      const int b = order[at];
      const uint64_t* conflict = conflicts_.row(b);
      const int size = problem_.size[b], alignment = problem_.alignment[b];
      int offset = 0, top = 0;
      for (const PlacedSpan& span : placed_) {
        const auto other = static_cast<unsigned>(span.buffer);
        const int in_conflict = static_cast<int>((conflict[other / 64] >> (other % 64)) & 1);
        if (in_conflict & static_cast<int>(span.offset - offset >= size)) break;
        top = (std::max)(top, span.end & -in_conflict);
        offset = AlignUnits(top, alignment);
      }
      const int end = offset + size;
      height = (std::max)(height, end);
      if (height > limit) return -1;
      (*offsets)[b] = offset;
      const PlacedSpan span{offset, end, b};
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), span), span);
    }
    return height;
  }

 private:
  const MemoryProblem& problem_;
  const size_t count_;
  BitMatrix conflicts_;
  std::vector<PlacedSpan> placed_;  // sorted by offset
};

// Stores, for each section of time, the highest end of the placed buffers. Used if there are more
// conflicts than can be listed. Raise and Highest cost O(log sections) each.
class Skyline {
 public:
  explicit Skyline(int sections) {
    while (leaves_ < Index(sections)) leaves_ *= 2;
    highest_.assign(2 * leaves_, 0);
    floor_.assign(2 * leaves_, 0);
  }
  int Highest(int lower, int upper) const {
    return Highest(1, 0, leaves_, {Index(lower), Index(upper)});
  }
  // Raises a span to a height that is not below Highest(lower, upper).
  void Raise(int lower, int upper, int height) {
    Raise(1, 0, leaves_, {Index(lower), Index(upper)}, height);
  }

 private:
  struct Span {
    size_t lower, upper;
  };
  // highest_[node]: the highest point in the node's span, without the floors of nodes above it.
  // floor_[node]: the height to which its whole span was raised.
  int Highest(size_t node, size_t begin, size_t end, Span span) const {
    if (span.upper <= begin || end <= span.lower) return 0;
    if (span.lower <= begin && end <= span.upper) return highest_[node];
    const size_t middle = (begin + end) / 2;
    const int left = Highest(2 * node, begin, middle, span);
    const int right = Highest(2 * node + 1, middle, end, span);
    return (std::max)({left, right, floor_[node]});
  }
  void Raise(size_t node, size_t begin, size_t end, Span span, int height) {
    if (span.upper <= begin || end <= span.lower) return;
    highest_[node] = (std::max)(highest_[node], height);
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
                          IndexedVector<int>* offsets) {
  Skyline skyline(problem.sections);
  offsets->assign(order.size(), 0);
  int height = 0;
  for (int b : order) {
    const int offset =
        AlignUnits(skyline.Highest(problem.lower[b], problem.upper[b]), problem.alignment[b]);
    skyline.Raise(problem.lower[b], problem.upper[b], offset + problem.size[b]);
    (*offsets)[b] = offset;
    height = (std::max)(height, offset + problem.size[b]);
  }
  return height;
}

// Places buffers as an allocator at run time would: in the order in which they begin, each into the
// smallest gap that fits, else on top of the live buffers. O(live buffers) for each.
inline int PlaceInTime(const MemoryProblem& problem, const std::vector<int>& by_lower,
                       IndexedVector<int>* offsets) {
  offsets->assign(by_lower.size(), 0);
  std::vector<int> live;  // live buffers in the order of their offsets
  int height = 0;
  for (int b : by_lower) {
    const int size = problem.size[b];
    int best = -1, best_gap = 0, free = 0;
    size_t kept = 0, place = 0;
    for (int o : live) {
      if (problem.upper[o] <= problem.lower[b]) continue;
      const int start = AlignUnits(free, problem.alignment[b]);
      const int gap = (*offsets)[o] - start;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = start;
        best_gap = gap;
        place = kept;
      }
      free = (*offsets)[o] + problem.size[o];
      live[kept++] = o;
    }
    if (best < 0) {
      best = AlignUnits(free, problem.alignment[b]);
      place = kept;
    }
    live.resize(kept);
    live.insert(live.begin() + static_cast<std::ptrdiff_t>(place), b);
    (*offsets)[b] = best;
    height = (std::max)(height, best + size);
  }
  return height;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_
