// TraceVisitor: walks a profile and calls one function for each kind of record that traces and
// reports show. Their writers derive from it, so that a new kind is added once, here.
#ifndef OPKIT_PROFILE_TRACE_VISITOR_HPP_
#define OPKIT_PROFILE_TRACE_VISITOR_HPP_

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "opkit/profile/nesting.hpp"
#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The displayed name of spans and their domain. Names are numbered from 0 in order of first use.
struct TraceName {
  size_t number = 0;
  std::string text;
  const char* domain = nullptr;
};

// A fact about one span.
struct TraceFact {
  enum class Kind { kText, kCount, kTime, kFlag };  // kTime: `number` is ns; kFlag: `number` is 1
  Kind kind;
  std::string_view name;
  uint64_t number = 0;
  std::string_view text = {};
};

// Visits the spans, counters and markers of a profile, with the names that traces display. Composes
// each name once, not once for each span, because composing locks the table of interned names.
// Names are valid as long as the visitor exists. Facts are valid only during the call that gets
// them.
class TraceVisitor {
 protected:
  explicit TraceVisitor(const Profile& profile) : profile_(profile) {}
  ~TraceVisitor() = default;

  // Calls OnSpan for each span, thread by thread; then OnPush for its push and OnAsynchronous for
  // its work after the span. Between OnSpan and OnSpanEnd come the spans inside it. For a custom
  // operator, OnUserCode reports each period in which none of these spans ran.
  void VisitSpans() {
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
  void VisitCounters() {
    for (const ProfileCounter& counter : profile_.counters) OnCounter(counter, Text(counter.name));
  }
  void VisitMarkers() {
    for (const ProfileMarker& marker : profile_.markers) OnMarker(marker, Text(marker.name));
  }
  // Calls OnFact for each known fact of the span, except its names, ids and times.
  void VisitFacts(const ProfileSpan& span) {
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
    if (const ProfileMessage& message = span.message; message.from >= 0)
      text("message", StrCat("from process ", message.from, " to ", message.to, ", channel ",
                             message.channel, StrCat(", run ", message.number)));
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

  virtual void OnSpan(const ProfileSpan& span, const TraceName& name) = 0;
  virtual void OnSpanEnd(const ProfileSpan&) {}
  virtual void OnUserCode(const ProfileSpan& span, const TraceName& name, int64_t begin,
                          int64_t end) = 0;
  virtual void OnPush(const ProfileSpan&, const TraceName&) {}
  virtual void OnAsynchronous(const ProfileSpan&, const TraceName&, int64_t /*begin*/,
                              int64_t /*end*/) {}
  virtual void OnFact(const TraceFact& fact) = 0;
  virtual void OnCounter(const ProfileCounter& counter, const std::string& name) = 0;
  virtual void OnMarker(const ProfileMarker& marker, const std::string& name) = 0;

  // True if an engine ran the span's task: OnPush is called for it.
  static bool IsTask(const ProfileSpan& span) { return span.pushed >= 0 && span.pusher >= 0; }
  // Returns the text of an interned name.
  const std::string& Text(uint32_t interned) {
    const auto [found, is_new] = texts_.try_emplace(interned);
    if (is_new) found->second = InternedName(interned);
    return found->second;
  }

  const Profile& profile_;

 private:
  const TraceName& NameOf(const ProfileSpan& span) {
    TraceName& name = names_.Of(span);
    if (!name.domain) name = {num_names_++, DisplayName(span), DomainOf(span)};
    return name;
  }
  const TraceName& UserCodeNameOf(const ProfileSpan& span) {
    TraceName& name = user_code_names_[span.custom];
    if (!name.domain) name = {num_names_++, UserCodeName(span), DomainOf(span)};
    return name;
  }

  size_t num_names_ = 0;
  PerName<TraceName> names_;
  std::map<uint32_t, TraceName> user_code_names_;  // by the custom operator's path
  std::map<uint32_t, std::string> texts_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_TRACE_VISITOR_HPP_
