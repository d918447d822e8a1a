// The function by which a library frees its interned names before it is unmapped. Only .ipp files
// include this header.
#ifndef OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_
#define OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_

#include "opkit/base/hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Deletes this image's table of names. The hook is empty before the table exists. The image must
// not use names after the call.
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_names{"deleting the names",
                                                               "opkit/base/interned_names.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_
