// g_has_gradient: whether a gradient is registered for an operator, for code that does without the
// registry of gradients where nothing registers one.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_

#include <string>

#include "opkit/base/hook.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The registration of a gradient fills it; also of the kinds that say that there is none.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_has_gradient{
    "a gradient", "opkit/graph.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
