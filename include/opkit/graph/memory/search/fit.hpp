// Ways to place buffers one after the other, each as low as it goes: between what conflicts with
// it, on top of it, or as an allocator at run time would.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_

#include "opkit/graph/memory/problem.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline int AlignUnits(int offset, int alignment) { return (offset + alignment - 1) & -alignment; }

// The best placing found so far.
struct Placing {
  std::vector<int> offsets;
  int height = 0;
  const char* method = nullptr;  // null: none yet
};

struct SearchBudget {
  int64_t deadline_ns = -1;  // none
  int64_t steps = 0;         // left
  uint64_t seed = 0;
  int enough = 0;
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
template <class Problem>
class LowestFit {
 public:
  explicit LowestFit(const Problem& problem) : problem_(problem) {}

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

  const Problem& problem_;
  std::vector<int64_t> taken_;
};

inline constexpr int kMostInMatrix = 8192;  // 8 MiB of bits

// Places the tail of an order anew on what its head placed. Conflicts are a bit matrix and what is
// placed is kept by offset, so that a scan for a gap has no branch to mispredict.
template <class Problem>
class MatrixFit {
 public:
  explicit MatrixFit(const Problem& problem, bool used = true)
      : problem_(problem), count_(static_cast<size_t>(problem.count)), words_((count_ + 63) / 64) {
    if (!used) return;
    conflict_.assign(count_ * words_, 0);
    for (size_t i = 0; i < count_; ++i)
      for (int64_t at = problem.starts[i]; at < problem.starts[i + 1]; ++at) {
        const auto other = static_cast<size_t>(problem.others[static_cast<size_t>(at)]);
        conflict_[i * words_ + other / 64] |= uint64_t{1} << (other % 64);
      }
  }

  // Places order[first] and what follows; those before it lie at `offsets`. Gives up with -1 as
  // soon as the height is above `limit`; the height otherwise.
  int Place(const std::vector<int>& order, size_t first, int limit, std::vector<int>* offsets) {
    placed_.clear();
    int height = 0;
    sorted_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first));
    SortIndices(sorted_, *offsets);
    for (int buffer : sorted_) {
      const auto b = static_cast<size_t>(buffer);
      const int end = (*offsets)[b] + problem_.size[b];
      placed_.push_back({(*offsets)[b], end, buffer});
      height = end > height ? end : height;
    }
    for (size_t at = first; at < count_; ++at) {
      const auto b = static_cast<size_t>(order[at]);
      const uint64_t* conflict = &conflict_[b * words_];
      const int size = problem_.size[b], alignment = problem_.alignment[b];
      int offset = 0, top = 0;
      for (const Span& span : placed_) {
        const auto other = static_cast<unsigned>(span.buffer);
        const int in_conflict = static_cast<int>((conflict[other / 64] >> (other % 64)) & 1);
        if (in_conflict & static_cast<int>(span.offset - offset >= size)) break;
        const int end = span.end & -in_conflict;
        top = end > top ? end : top;
        offset = AlignUnits(top, alignment);
      }
      const int end = offset + size;
      height = end > height ? end : height;
      if (height > limit) return -1;
      (*offsets)[b] = offset;
      Insert({offset, end, order[at]});
    }
    return height;
  }

 private:
  struct Span {
    int offset, end, buffer;
  };
  // Keeps the order by offset.
  void Insert(Span span) {
    placed_.push_back(span);
    size_t i = placed_.size() - 1;
    for (; i > 0 && placed_[i - 1].offset > span.offset; --i) placed_[i] = placed_[i - 1];
    placed_[i] = span;
  }

  const Problem& problem_;
  const size_t count_, words_;
  std::vector<uint64_t> conflict_;
  std::vector<Span> placed_;
  std::vector<int> sorted_;
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

template <class Problem>
int PlaceOnSkyline(const Problem& problem, const std::vector<int>& order,
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
template <class Problem>
int PlaceInTime(const Problem& problem, const std::vector<int>& by_lower,
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_FIT_HPP_
