// Walks the spans of a profile as they nest on their threads, and groups spans by their displayed
// name. The writers of traces, tables and reports use it.
#ifndef OPKIT_PROFILE_NESTING_HPP_
#define OPKIT_PROFILE_NESTING_HPP_

#include <map>
#include <tuple>
#include <vector>

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A map from the names that spans display to values. It stays small, because spans combine their
// interned names in few different ways.
template <class Value>
class PerName {
 public:
  // Returns the value for the span's name. Node, shapes and backend distinguish values only if they
  // are given.
  Value& Of(const ProfileSpan& span, uint32_t node = 0, uint32_t shapes = 0, uint32_t backend = 0) {
    return values_[{span.name, span.custom, span.kind, span.adopted, node, shapes, backend}];
  }

 private:
  std::map<std::tuple<uint32_t, uint32_t, Invocation::Kind, bool, uint32_t, uint32_t, uint32_t>,
           Value>
      values_;
};

// Calls open(span) for each span in order. Calls gap(span, begin, end) for each period of a span
// during which none of its children runs, and close(span, self) with the sum of these periods.
template <class Open, class Gap, class Close>
void WalkSpans(const Profile& profile, Open open, Gap gap, Close close) {
  struct Level {
    const ProfileSpan* span;
    int64_t cursor;  // the end of its last child
    int64_t self = 0;
  };
  std::vector<Level> levels;
  const auto advance = [&](Level& level, int64_t to, int64_t next) {
    if (to > level.cursor) {
      level.self += to - level.cursor;
      gap(*level.span, level.cursor, to);
    }
    level.cursor = next;
  };
  const auto pop = [&] {
    Level& level = levels.back();
    advance(level, level.span->end, level.span->end);
    close(*level.span, level.self);
    levels.pop_back();
  };
  for (const ProfileSpan& span : profile.spans) {
    while (!levels.empty() &&
           (levels.back().span->thread != span.thread || levels.back().span->end < span.end ||
            levels.back().span->end <= span.begin))
      pop();
    if (!levels.empty()) advance(levels.back(), span.begin, span.end);
    open(span);
    levels.push_back({&span, span.begin});
  }
  while (!levels.empty()) pop();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_NESTING_HPP_
