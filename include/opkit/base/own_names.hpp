// Where a library that is unmapped frees the names that it has interned. For definitions.
#ifndef OPKIT_BASE_OWN_NAMES_HPP_
#define OPKIT_BASE_OWN_NAMES_HPP_

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Deletes this image's table; null before there is one. Nothing of the image may name anything
// then.
using DeleteNames = void (*)();
OPKIT_IMAGE_LOCAL inline constinit DeleteNames g_delete_names = nullptr;

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_OWN_NAMES_HPP_
