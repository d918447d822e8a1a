#include "units.hpp"

Seen SeenByB() {
  return {&opkit::GetAllocator(opkit::DeviceType::kCPU), &opkit::OpRegistry::Global(),
          &opkit::detail::t_invocation,
          [] { opkit::Throw(opkit::ErrorCode::kNotFound, "from unit b"); }};
}
