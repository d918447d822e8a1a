// What an instance of a function operator has from outside: the services of its device's context,
// and the name by which a backward node finds its forward operator's state.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_DEVICE_LINK_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_DEVICE_LINK_HPP_

#include "opkit/base/unique_function.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The argument of a backward node that names the blob with its forward operator's state.
inline constexpr const char* kStateArgument = "__state";

// The services of a context for the functions, taken anew for each run.
struct FunctionDeviceLink {
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void*, UniqueFunction<void()>) = nullptr;
  void (*drain)(void*) = nullptr;  // waits for the work issued before; null where none can be open
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_DEVICE_LINK_HPP_
