// The function by which a library frees its interned names before it is unmapped. Only .ipp files
// include this header.
#ifndef OPKIT_BASE_OWN_NAMES_HPP_
#define OPKIT_BASE_OWN_NAMES_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Deletes this image's table of names; null before there is a table. The image must not use names
// after the call.
using DeleteNames = void (*)();
OPKIT_IMAGE_LOCAL inline constinit DeleteNames g_delete_names = nullptr;

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BASE_OWN_NAMES_HPP_
