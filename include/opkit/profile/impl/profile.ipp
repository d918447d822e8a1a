// Names and domains of spans.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_IPP_

#include <iterator>

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::string detail::UserCodeName(const ProfileSpan& span) {
  return StrCat(InternedName(span.custom), "::user_code");
}

OPKIT_INLINE std::string DisplayName(const ProfileSpan& span) {
  const std::string name = span.name ? InternedName(span.name) : "(unnamed)";
  if (span.custom == 0 || span.kind == Invocation::Kind::kEngine) return name;
  const std::string path = InternedName(span.custom);
  if (span.kind == Invocation::Kind::kCustomOperator)
    return span.adopted ? detail::UserCodeName(span) : path;
  return StrCat(path, "::", name);
}

OPKIT_INLINE const char* DomainOf(const ProfileSpan& span) {
  if (span.kind == Invocation::Kind::kEngine) return "engine";
  if (span.custom != 0) return "Custom Operators";
  constexpr const char* kDomains[] = {"operator", "operator",  "operator", "operator",
                                      "user",     "converter", "copy",     "run",
                                      "task",     "phase",     "engine"};  // by kind
  const auto kind = static_cast<size_t>(span.kind);
  return kind < std::size(kDomains) ? kDomains[kind] : "operator";
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_IPP_
