// The definitions of opkit/base/hook.hpp.
#ifndef OPKIT_BASE_IMPL_HOOK_IPP_
#define OPKIT_BASE_IMPL_HOOK_IPP_

#include "opkit/base/error.hpp"
#include "opkit/base/hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowEmptyHook(const char* what, const char* header) {
  // The folders of tuning and of several processes are included by name alone.
  const std::string_view name = header;
  const bool is_in_all = name.find("/tune/") == name.npos && name.find("/cluster/") == name.npos;
  Throw(ErrorCode::kFailedPrecondition, what, " needs ", header,
        is_in_all ? ": include it (or opkit/all.hpp)" : ": include it",
        " in one file of the program, and call it from main on, not "
        "from a static variable's initialiser");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_HOOK_IPP_
