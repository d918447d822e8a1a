// The table of opkit/device/native_stream.hpp.
#ifndef OPKIT_DEVICE_IMPL_NATIVE_STREAM_IPP_
#define OPKIT_DEVICE_IMPL_NATIVE_STREAM_IPP_

#include "opkit/base/index.hpp"
#include "opkit/core/allocator.hpp"
#include "opkit/device/native_stream.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_IMAGE_LOCAL inline constinit std::atomic<NativeStreamFunction>
    g_native_streams[AllocatorTable::kSlots] = {};

}  // namespace detail

OPKIT_INLINE bool RegisterNativeStreams(DeviceType type, NativeStreamFunction issue) {
  if (static_cast<uint64_t>(type) >= detail::AllocatorTable::kSlots)
    Throw(ErrorCode::kOutOfRange, "a device type has the number ", static_cast<int64_t>(type),
          "; expected 0 to ", int64_t{detail::AllocatorTable::kSlots} - 1);
  detail::g_native_streams[detail::Index(type)].store(issue, std::memory_order_release);
  return true;
}
OPKIT_INLINE NativeStreamFunction FindNativeStreams(DeviceType type) {
  const auto slot = static_cast<uint64_t>(type);
  return slot < detail::AllocatorTable::kSlots
             ? detail::g_native_streams[slot].load(std::memory_order_acquire)
             : nullptr;
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_NATIVE_STREAM_IPP_
