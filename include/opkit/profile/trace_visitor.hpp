// TraceVisitor: walks a profile and calls one function for each thing that traces and reports show.
// Their writers derive from it, so that a new kind of record is added here, once.
#ifndef OPKIT_PROFILE_TRACE_VISITOR_HPP_
#define OPKIT_PROFILE_TRACE_VISITOR_HPP_

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
  enum class Kind { kText, kCount, kTime, kFlag };  // kTime: `number` is ns; kFlag: it is 1
  Kind kind;
  std::string_view name;
  uint64_t number = 0;
  std::string_view text = {};
};

// Displayed names are composed, and the lock of interned names is taken, once for each name and
// not for each span. Names are valid as long as the visitor, facts during the call.
class TraceVisitor {
 protected:
  explicit TraceVisitor(const Profile& profile) : profile_(profile) {}
  ~TraceVisitor() = default;

  // Calls OnSpan for each span, thread by thread; then for its push and its work after the span
  // OnPush and OnAsynchronous. Between OnSpan and OnSpanEnd come the spans inside it and, for a
  // custom operator, OnUserCode for each time in which none of them ran.
  void VisitSpans();
  void VisitCounters();
  void VisitMarkers();
  // Calls OnFact for each fact that is known of the span, its names, ids and times aside.
  void VisitFacts(const ProfileSpan& span);

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
  const std::string& Text(uint32_t interned);

  const Profile& profile_;

 private:
  const TraceName& NameOf(const ProfileSpan& span);
  const TraceName& UserCodeNameOf(const ProfileSpan& span);

  size_t num_names_ = 0;
  PerName<TraceName> names_;
  std::map<uint32_t, TraceName> user_code_names_;  // by the custom operator's path
  std::map<uint32_t, std::string> texts_;
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/trace_visitor.ipp"
#endif

#endif  // OPKIT_PROFILE_TRACE_VISITOR_HPP_
