// The search for a placing under a given ceiling, if spans of time alone decide conflicts. Buffers
// are stacked on a skyline (address over time). Each step takes a valley of it, a run of sections
// lower than both neighbours, and decides what lies on its floor at one of its two edges. That is
// one of the few buffers that reach the edge and fit between the walls, or nothing; then the space
// below the next height is lost.
//
// A section whose floor and unplaced sizes together pass the ceiling ends a branch (section floors
// as in MiniMalloc: Moffitt, ASPLOS 2023). The edge with the fewest choices per recorded failure is
// decided first (dom/wdeg: Boussemart et al., ECAI 2004). A search that has failed too often starts
// again with other preferences, but remembers where it failed.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_

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
        count_(Index(problem.count)),
        sections_(Index(problem.sections)),
        cover_(sections_,
               [&](auto add) {
                 for (size_t i = count_; i-- > 0;)
                   for (size_t s = Lower(i); s < Upper(i); ++s) add(s, i);
               }),
        weight_(sections_, 1.0) {}

  // Looks for a placing of at most `ceiling` units; prefers buffers of low rank. Gives up after
  // `max_nodes` nodes or at the deadline (negative: none). kImpossible: there is no such placing.
  SearchEnd Run(int ceiling, const std::vector<int>& rank, int64_t max_nodes, int64_t deadline_ns) {
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
  const std::vector<int>& offsets() const { return offsets_; }
  int height() const {
    int height = 0;
    for (size_t i = 0; i < count_; ++i) height = (std::max)(height, offsets_[i] + problem_.size[i]);
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
    size_t section = 0;  // the edge that is decided
    int floor = 0;
    size_t first = 0, next = 0, end = 0;  // indices in choices_
    size_t trail = 0;
    int placed = -1;
    bool passed = false;  // the leave-empty branch has been tried
  };

  size_t Lower(size_t i) const { return Index(problem_.lower[i]); }
  size_t Upper(size_t i) const { return Index(problem_.upper[i]); }

  void Reset();

  // Raises buffer j's lowest offset, and marks the sections that had their floor from it as dirty.
  void Lift(size_t j, int offset);
  void Record(int changed, int old) { trail_.push_back({changed, old}); }

  // Brings the floors up to date. Returns false if some section cannot hold its unplaced buffers.
  bool Consistent();

  void Undo(const Frame& frame);

  // Takes the frame's next choice. Returns false if there is none left.
  bool Advance(Frame* frame);

  // True if an equal buffer has been tried in this frame before.
  bool IsTwin(const Frame& frame, size_t i) const {
    for (size_t at = frame.first; at + 1 < frame.next; ++at) {
      const size_t j = Index(choices_[at]);
      if (problem_.lower[i] == problem_.lower[j] && problem_.upper[i] == problem_.upper[j] &&
          problem_.size[i] == problem_.size[j] && problem_.alignment[i] == problem_.alignment[j])
        return true;
    }
    return false;
  }

  void Place(size_t i, int offset);

  // Leaves the floor empty at the edge: raises its buffers to the next height where one may lie.
  // Returns false if they cannot lie there under the ceiling.
  bool Pass(const Frame& frame);

  int Choices(size_t s) const {
    int choices = 0;
    for (int i : cover_.of(s)) choices += lowest_[i] == floor_[s];
    return choices;
  }

  // Picks the edge to decide next and lists the buffers that may lie there, by rank.
  void OpenFrame();

  const MemoryProblem& problem_;
  const size_t count_, sections_;
  const FlatLists cover_;       // the buffers that are live in each section
  std::vector<double> weight_;  // 1 plus the number of failures of each section
  std::vector<uint8_t> dirty_mark_;
  std::vector<int> dirty_;

  int ceiling_ = 0;
  const std::vector<int>* rank_ = nullptr;
  int64_t nodes_ = 0;
  size_t unplaced_ = 0;
  IndexedVector<int> lowest_;  // the offset of each buffer on top of the placed ones
  std::vector<int> offsets_;
  IndexedVector<int> floor_;      // the lowest of `lowest_` in each section
  std::vector<int> unplaced_in_;  // the units not yet placed in each section
  struct Change {
    int changed, old;  // buffer i as i, section s as ~s
  };
  std::vector<Change> trail_;
  std::vector<int> choices_;
  std::vector<Frame> frames_;
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/search/impl/skyline_search.ipp"
#endif

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_SEARCH_HPP_
