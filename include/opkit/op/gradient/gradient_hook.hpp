// Hooks into the registry of gradients, for code that must also link without the registry. The
// hooks stay empty if a program registers no gradient.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_

#include <string>

#include "opkit/base/hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if a gradient is registered for an operator, or a declaration that it has no gradient.
// RegisterGradient fills the hook.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_has_gradient{
    "a gradient", "opkit/op/gradient/gradient.hpp"};
// Frees a library's registry of gradients when the library is unloaded. The registry fills the
// hook.
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_gradients{
    "a gradient", "opkit/op/gradient/gradient.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
