// The search for a placing under a given ceiling, if spans of time alone decide conflicts. Buffers
// are stacked on a skyline (address over time). Each step takes a valley of the skyline, a run of
// sections lower than both neighbours, and decides what lies on its floor at one of its two edges:
// one of the few buffers that reach the edge and fit between the walls, or nothing. If nothing, the
// space below the next height is lost.
//
// A section whose floor and unplaced sizes together pass the ceiling ends a branch (section floors
// as in MiniMalloc: Moffitt, ASPLOS 2023). The edge with the fewest choices per recorded failure is
// decided first (dom/wdeg: Boussemart et al., ECAI 2004). A search that has failed too often starts
// again with other preferences, but remembers where it failed.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_

#include <algorithm>
#include <numeric>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/problem.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

enum class SearchEnd { kFound, kImpossible, kGaveUp };

// The search of a placement on a skyline. The weights that a Run learns serve the next Run. Not
// thread-safe.
class SkylineSearch {
 public:
  explicit SkylineSearch(const MemoryProblem& problem)
      : problem_(problem),
        count_(problem.count),
        sections_(problem.sections),
        cover_(Index(sections_),
               [&](auto add) {
                 for (int i = count_ - 1; i >= 0; --i)
                   for (int s = problem.lower[i]; s < problem.upper[i]; ++s) add(s, i);
               }),
        weight_(Index(sections_), 1.0) {}

  // Looks for a placing of at most `ceiling` units; prefers buffers of low rank. Gives up after
  // `max_nodes` nodes or at the deadline (negative: none). kImpossible: there is no such placing.
  SearchEnd Run(int ceiling, const IndexedVector<int>& rank, int64_t max_nodes,
                int64_t deadline_ns) {
    ceiling_ = ceiling;
    rank_ = &rank;
    nodes_ = 0;
    Reset();
    if (!Consistent()) return SearchEnd::kImpossible;
    OpenFrame();
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      Undo(frame);
      if (!Advance(&frame)) {
        choices_.resize(frame.first);
        frames_.pop_back();
        continue;
      }
      if (!Consistent()) continue;
      if (unplaced_ == 0) return SearchEnd::kFound;
      if (++nodes_ >= max_nodes ||
          (deadline_ns >= 0 && nodes_ % 64 == 0 && MonotonicNs() >= deadline_ns))
        return SearchEnd::kGaveUp;
      OpenFrame();
    }
    return SearchEnd::kImpossible;
  }

  // The placing that Run found; valid after kFound.
  const IndexedVector<int>& offsets() const { return offsets_; }
  int height() const {
    int height = 0;
    for (int i = 0; i < count_; ++i) height = (std::max)(height, offsets_[i] + problem_.size[i]);
    return height;
  }
  int64_t nodes() const { return nodes_; }

  // Reduces the weight of old failures, compared with those of the next restart.
  void Forget() {
    for (double& weight : weight_) weight = 1 + (weight - 1) * 0.9;
  }

 private:
  static constexpr int kNone =
      1 << 30;  // lowest offset of a placed buffer; floor where all are placed

  // A node of the search: the choices at one edge, and the choice taken.
  struct Frame {
    int section = 0;  // the edge that is decided
    int floor = 0;
    size_t first = 0, next = 0, end = 0;  // indices in choices_
    size_t trail = 0;
    int placed = -1;
    bool passed = false;  // the leave-empty branch has been tried
  };

  void Reset() {
    lowest_.assign(Index(count_), 0);
    offsets_.assign(lowest_.size(), 0);
    floor_.assign(weight_.size(), 0);
    unplaced_in_.assign(problem_.total.begin(), problem_.total.begin() + sections_);
    unplaced_ = count_;
    frames_.clear();
    choices_.clear();
    trail_.clear();
    dirty_mark_.assign(weight_.size(), 1);
    dirty_.resize(weight_.size());
    std::iota(dirty_.begin(), dirty_.end(), 0);
  }

  // Raises buffer j's lowest offset, and marks the sections that had their floor from it as dirty.
  void Lift(int j, int offset) {
    const int old = lowest_[j];
    Record(j, old);
    lowest_[j] = offset;
    for (int s = problem_.lower[j]; s < problem_.upper[j]; ++s)
      if (floor_[s] == old && !dirty_mark_[s]) {
        dirty_mark_[s] = 1;
        dirty_.push_back(s);
      }
  }

  void Record(int changed, int old) { trail_.push_back({changed, old}); }

  // Brings the floors up to date. Returns false if some section cannot hold its unplaced buffers.
  bool Consistent() {
    bool consistent = true;
    for (int s : dirty_) {
      dirty_mark_[s] = 0;
      if (!consistent) continue;
      int floor = kNone;
      for (int i : cover_.of(s)) floor = (std::min)(floor, lowest_[i]);
      if (floor != floor_[s]) {
        Record(~s, floor_[s]);
        floor_[s] = floor;
      }
      if (floor != kNone && floor + unplaced_in_[s] > ceiling_) {
        weight_[s] += 1;
        consistent = false;
      }
    }
    dirty_.clear();
    return consistent;
  }

  void Undo(const Frame& frame) {
    for (; trail_.size() > frame.trail; trail_.pop_back()) {
      const auto [changed, old] = trail_.back();
      if (changed >= 0)
        lowest_[changed] = old;
      else
        floor_[~changed] = old;
    }
    if (frame.placed < 0) return;
    const int i = frame.placed;
    for (int s = problem_.lower[i]; s < problem_.upper[i]; ++s) unplaced_in_[s] += problem_.size[i];
    ++unplaced_;
  }

  // Takes the frame's next choice. Returns false if there is none left.
  bool Advance(Frame* frame) {
    frame->placed = -1;
    while (frame->next < frame->end) {
      const int i = choices_[frame->next++];
      if (frame->floor + problem_.size[i] > ceiling_ || IsTwin(*frame, i)) continue;
      Place(i, frame->floor);
      frame->placed = i;
      return true;
    }
    if (frame->passed) return false;
    frame->passed = true;
    return Pass(*frame);
  }

  // True if the search has tried an equal buffer in this frame before.
  bool IsTwin(const Frame& frame, int i) const {
    for (size_t at = frame.first; at + 1 < frame.next; ++at) {
      const int j = choices_[at];
      if (problem_.lower[i] == problem_.lower[j] && problem_.upper[i] == problem_.upper[j] &&
          problem_.size[i] == problem_.size[j] && problem_.alignment[i] == problem_.alignment[j])
        return true;
    }
    return false;
  }

  void Place(int i, int offset) {
    const int top = offset + problem_.size[i];
    offsets_[i] = offset;
    --unplaced_;
    for (int s = problem_.lower[i]; s < problem_.upper[i]; ++s) unplaced_in_[s] -= problem_.size[i];
    Lift(i, kNone);
    for (int j : problem_.conflicts.of(i))
      if (lowest_[j] < top) Lift(j, AlignUnits(top, problem_.alignment[j]));
  }

  // Leaves the floor empty at the edge: raises its buffers to the next height where one may lie.
  // Returns false if they cannot lie there under the ceiling.
  bool Pass(const Frame& frame) {
    const int s = frame.section;
    int next = kNone;
    for (int i : cover_.of(s)) {
      if (lowest_[i] > frame.floor)
        next = (std::min)(next, lowest_[i]);
      else  // the buffer rests on a buffer of the valley that does not reach the edge
        for (int j : problem_.conflicts.of(i)) {
          const int top = lowest_[j] + problem_.size[j];
          if (top < next && !(problem_.lower[j] <= s && s < problem_.upper[j])) next = top;
        }
    }
    if (next >= kNone || next + unplaced_in_[s] > ceiling_) {
      weight_[s] += 1;
      return false;
    }
    for (int i : cover_.of(s))
      if (lowest_[i] < next) Lift(i, AlignUnits(next, problem_.alignment[i]));
    return true;
  }

  int Choices(int s) const {
    int choices = 0;
    for (int i : cover_.of(s)) choices += lowest_[i] == floor_[s];
    return choices;
  }

  // Picks the edge to decide next and lists the buffers that may lie there, by rank.
  void OpenFrame() {
    double best = 0;
    int edge = sections_;
    const auto consider = [&](int s) {
      const bool may_pass = floor_[s] + unplaced_in_[s] < ceiling_;
      // The edge with the least score is taken. Of equal edges, the edge with the lowest floor is
      // taken: the floor's part of the score is too small to decide anything else.
      const double score =
          (Choices(s) + (may_pass ? 1 : 0)) / weight_[s] + 1e-9 * floor_[s] / (1 + ceiling_);
      if (edge < sections_ && score >= best) return;
      best = score;
      edge = s;
    };
    for (int left = 0; left < sections_;) {
      int right = left + 1;
      while (right < sections_ && floor_[right] == floor_[left]) ++right;
      if (floor_[left] != kNone && (left == 0 || floor_[left - 1] > floor_[left]) &&
          (right == sections_ || floor_[right] > floor_[left])) {
        consider(left);
        if (right - left > 1) consider(right - 1);
      }
      left = right;
    }
    Frame frame;
    frame.section = edge;
    frame.floor = floor_[edge];
    frame.first = frame.next = choices_.size();
    frame.trail = trail_.size();
    for (int i : cover_.of(edge)) {
      if (lowest_[i] != frame.floor) continue;
      const auto is_before = [&](int a, int b) { return (*rank_)[a] < (*rank_)[b]; };
      const auto first = choices_.begin() + static_cast<std::ptrdiff_t>(frame.first);
      choices_.insert(std::lower_bound(first, choices_.end(), i, is_before), i);
    }
    frame.end = choices_.size();
    frames_.push_back(frame);
  }

  const MemoryProblem& problem_;
  const int count_, sections_;
  const FlatLists cover_;         // the buffers that are live in each section
  IndexedVector<double> weight_;  // 1 plus the number of failures of each section
  IndexedVector<uint8_t> dirty_mark_;
  std::vector<int> dirty_;

  int ceiling_ = 0;
  const IndexedVector<int>* rank_ = nullptr;
  int64_t nodes_ = 0;
  int unplaced_ = 0;
  IndexedVector<int> lowest_;  // the offset of each buffer on top of the placed ones
  IndexedVector<int> offsets_;
  IndexedVector<int> floor_;        // the lowest of `lowest_` in each section
  IndexedVector<int> unplaced_in_;  // the units not yet placed in each section
  struct Change {
    int changed, old;  // buffer i as i, section s as ~s
  };
  std::vector<Change> trail_;
  std::vector<int> choices_;
  std::vector<Frame> frames_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_
