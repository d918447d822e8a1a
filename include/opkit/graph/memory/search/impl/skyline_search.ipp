// Definitions of SkylineSearch: its steps down, its steps back, and its pruning.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_IMPL_SKYLINE_SEARCH_IPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_IMPL_SKYLINE_SEARCH_IPP_

#include <algorithm>
#include <numeric>

#include "opkit/graph/memory/search/skyline_search.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void SkylineSearch::Reset() {
  lowest_.assign(count_, 0);
  offsets_.assign(count_, 0);
  floor_.assign(sections_, 0);
  unplaced_in_.assign(problem_.total.begin(),
                      problem_.total.begin() + static_cast<std::ptrdiff_t>(sections_));
  unplaced_ = count_;
  frames_.clear();
  choices_.clear();
  trail_.clear();
  dirty_mark_.assign(sections_, 1);
  dirty_.resize(sections_);
  std::iota(dirty_.begin(), dirty_.end(), 0);
}

OPKIT_INLINE void SkylineSearch::Lift(size_t j, int offset) {
  const int old = lowest_[j];
  Record(static_cast<int>(j), old);
  lowest_[j] = offset;
  for (size_t s = Lower(j); s < Upper(j); ++s)
    if (floor_[s] == old && !dirty_mark_[s]) {
      dirty_mark_[s] = 1;
      dirty_.push_back(static_cast<int>(s));
    }
}

OPKIT_INLINE bool SkylineSearch::Consistent() {
  bool consistent = true;
  for (int section : dirty_) {
    const size_t s = Index(section);
    dirty_mark_[s] = 0;
    if (!consistent) continue;
    int floor = kNone;
    for (int i : cover_.of(s)) floor = (std::min)(floor, lowest_[i]);
    if (floor != floor_[s]) {
      Record(~section, floor_[s]);
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

OPKIT_INLINE void SkylineSearch::Undo(const Frame& frame) {
  for (; trail_.size() > frame.trail; trail_.pop_back()) {
    const auto [changed, old] = trail_.back();
    if (changed >= 0)
      lowest_[changed] = old;
    else
      floor_[~changed] = old;
  }
  if (frame.placed < 0) return;
  const size_t i = Index(frame.placed);
  for (size_t s = Lower(i); s < Upper(i); ++s) unplaced_in_[s] += problem_.size[i];
  ++unplaced_;
}

OPKIT_INLINE bool SkylineSearch::Advance(Frame* frame) {
  frame->placed = -1;
  while (frame->next < frame->end) {
    const size_t i = Index(choices_[frame->next++]);
    if (frame->floor + problem_.size[i] > ceiling_ || IsTwin(*frame, i)) continue;
    Place(i, frame->floor);
    frame->placed = static_cast<int>(i);
    return true;
  }
  if (frame->passed) return false;
  frame->passed = true;
  return Pass(*frame);
}

OPKIT_INLINE void SkylineSearch::Place(size_t i, int offset) {
  const int top = offset + problem_.size[i];
  offsets_[i] = offset;
  --unplaced_;
  for (size_t s = Lower(i); s < Upper(i); ++s) unplaced_in_[s] -= problem_.size[i];
  Lift(i, kNone);
  for (int other : problem_.conflicts.of(i)) {
    const size_t j = Index(other);
    if (lowest_[j] < top) Lift(j, AlignUnits(top, problem_.alignment[j]));
  }
}

OPKIT_INLINE bool SkylineSearch::Pass(const Frame& frame) {
  const size_t s = frame.section;
  int next = kNone;
  for (int buffer : cover_.of(s)) {
    const size_t i = Index(buffer);
    if (lowest_[i] > frame.floor)
      next = (std::min)(next, lowest_[i]);
    else  // the buffer rests on a buffer of the valley that does not reach the edge
      for (int below : problem_.conflicts.of(i)) {
        const size_t j = Index(below);
        const int top = lowest_[j] + problem_.size[j];
        if (top < next && !(Lower(j) <= s && s < Upper(j))) next = top;
      }
  }
  if (next >= kNone || next + unplaced_in_[s] > ceiling_) {
    weight_[s] += 1;
    return false;
  }
  for (int buffer : cover_.of(s)) {
    const size_t i = Index(buffer);
    if (lowest_[i] < next) Lift(i, AlignUnits(next, problem_.alignment[i]));
  }
  return true;
}

OPKIT_INLINE void SkylineSearch::OpenFrame() {
  double best = 0;
  size_t edge = sections_;
  const auto consider = [&](size_t s) {
    const bool may_pass = floor_[s] + unplaced_in_[s] < ceiling_;
    // Among equal edges the lowest is taken; the share of the floor in the score stays below any
    // other difference.
    const double score =
        (Choices(s) + (may_pass ? 1 : 0)) / weight_[s] + 1e-9 * floor_[s] / (1 + ceiling_);
    if (edge < sections_ && score >= best) return;
    best = score;
    edge = s;
  };
  for (size_t left = 0; left < sections_;) {
    size_t right = left + 1;
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
    const auto is_before = [&](int a, int b) { return (*rank_)[Index(a)] < (*rank_)[Index(b)]; };
    const auto first = choices_.begin() + static_cast<std::ptrdiff_t>(frame.first);
    choices_.insert(std::lower_bound(first, choices_.end(), i, is_before), i);
  }
  frame.end = choices_.size();
  frames_.push_back(frame);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_IMPL_SKYLINE_SEARCH_IPP_
