// The walk over a profile, with the facts of spans in the order in which writers get them.
#ifndef OPKIT_PROFILE_IMPL_TRACE_VISITOR_IPP_
#define OPKIT_PROFILE_IMPL_TRACE_VISITOR_IPP_

#include <algorithm>

#include "opkit/profile/trace_visitor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void TraceVisitor::VisitSpans() {
  WalkSpans(
      profile_,
      [&](const ProfileSpan& span) {
        const TraceName& name = NameOf(span);
        OnSpan(span, name);
        if (IsTask(span)) OnPush(span, name);
        if (const auto [begin, end] = AsynchronousTime(span); end >= 0)
          OnAsynchronous(span, name, begin, end);
      },
      [&](const ProfileSpan& span, int64_t begin, int64_t end) {
        if (HasUserCode(span)) OnUserCode(span, UserCodeNameOf(span), begin, end);
      },
      [&](const ProfileSpan& span, int64_t) { OnSpanEnd(span); });
}

OPKIT_INLINE void TraceVisitor::VisitCounters() {
  for (const ProfileCounter& counter : profile_.counters) OnCounter(counter, Text(counter.name));
}
OPKIT_INLINE void TraceVisitor::VisitMarkers() {
  for (const ProfileMarker& marker : profile_.markers) OnMarker(marker, Text(marker.name));
}

OPKIT_INLINE void TraceVisitor::VisitFacts(const ProfileSpan& span) {
  const auto text = [&](std::string_view name, std::string_view value) {
    OnFact({TraceFact::Kind::kText, name, 0, value});
  };
  const auto count = [&](std::string_view name, uint64_t value) {
    OnFact({TraceFact::Kind::kCount, name, value});
  };
  if (span.device != Device{}) text("device", ToString(span.device));
  if (span.work.shapes != 0) {
    text("shapes", Text(span.work.shapes));
    text("backend", Text(span.work.backend));
    count("flops", span.work.flops);
    count("bytes", span.work.bytes);
  }
  if (span.pushed >= 0)
    OnFact({TraceFact::Kind::kTime, "wait", static_cast<uint64_t>(span.begin - span.pushed)});
  const auto counts =
      std::lower_bound(profile_.counts.begin(), profile_.counts.end(), span.id,
                       [](const ProfileCounts& one, uint64_t id) { return one.invocation < id; });
  if (counts != profile_.counts.end() && counts->invocation == span.id)
    for (size_t i = 0; i < profile_.counted.size(); ++i)
      count(profile_.counted[i], counts->values[i]);
  if (span.open) OnFact({TraceFact::Kind::kFlag, "open", 1});
}

OPKIT_INLINE const std::string& TraceVisitor::Text(uint32_t interned) {
  const auto [found, is_new] = texts_.try_emplace(interned);
  if (is_new) found->second = InternedName(interned);
  return found->second;
}
OPKIT_INLINE const TraceName& TraceVisitor::NameOf(const ProfileSpan& span) {
  TraceName& name = names_.Of(span);
  if (!name.domain) name = {num_names_++, DisplayName(span), DomainOf(span)};
  return name;
}
OPKIT_INLINE const TraceName& TraceVisitor::UserCodeNameOf(const ProfileSpan& span) {
  TraceName& name = user_code_names_[span.custom];
  if (!name.domain) name = {num_names_++, UserCodeName(span), DomainOf(span)};
  return name;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_TRACE_VISITOR_IPP_
