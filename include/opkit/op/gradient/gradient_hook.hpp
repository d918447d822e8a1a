// What code that does without the registry of gradients, where nothing registers one, asks of it.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_

#include <string>

#include "opkit/base/hook.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Whether a gradient is registered for an operator, also one of the kinds that say that there is
// none. The registration of a gradient fills it.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_has_gradient{
    "a gradient", "opkit/graph.hpp"};
// Frees a library's registry of gradients, where the library ends. The registry fills it.
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_gradients{"a gradient", "opkit/graph.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
