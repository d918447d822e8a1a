// The definitions of opkit/base/hook.hpp.
#ifndef OPKIT_BASE_IMPL_HOOK_IPP_
#define OPKIT_BASE_IMPL_HOOK_IPP_

#include "opkit/base/error.hpp"
#include "opkit/base/hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowEmptyHook(const char* what, const char* header) {
  // The folder of tuning is included by name alone.
  const bool is_in_all = std::string_view(header).find("/tune/") == std::string_view::npos;
  Throw(ErrorCode::kFailedPrecondition, what, " needs ", header,
        is_in_all ? ": include it (or opkit/all.hpp)" : ": include it",
        " in one file of the program, and call it from main on, not "
        "from a static variable's initialiser");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_HOOK_IPP_
