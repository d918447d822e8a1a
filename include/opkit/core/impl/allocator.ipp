// The definitions of opkit/core/allocator.hpp.
#ifndef OPKIT_CORE_IMPL_ALLOCATOR_IPP_
#define OPKIT_CORE_IMPL_ALLOCATOR_IPP_

#include "opkit/core/allocator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
inline void TellMemorySink(const Allocator& allocator, int64_t bytes, int64_t live) noexcept {
  if (MemorySink* sink = g_memory_sink.load(std::memory_order_acquire)) [[unlikely]]
    sink->Changed(allocator, bytes, live);
}
}  // namespace detail

OPKIT_INLINE void* Allocator::Allocate(int64_t bytes, int32_t index) {
  if (bytes <= 0) return nullptr;
  void* data = DoAllocateOn(index, bytes);
  if (!data)
    Throw(ErrorCode::kOutOfMemory, "out of memory on ", name(), ": ", bytes,
          " bytes were asked for while ", live_bytes(), " bytes are in use");
  // Relaxed: statistics, they order nothing.
  const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  detail::TellMemorySink(*this, bytes, live);
  return data;
}

OPKIT_INLINE void Allocator::Deallocate(void* data, int64_t bytes) noexcept {
  if (!data) return;
  const int64_t live = live_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  DoDeallocate(data, bytes);
  detail::TellMemorySink(*this, -bytes, live);
}

namespace detail {

OPKIT_INLINE DeviceTable<Allocator*>& Allocators() {
  static constinit DeviceTable<Allocator*> table;
  // Never destroyed, so that it outlives every static tensor. In static memory, because heap memory
  // of a library that is unloaded would leak.
  alignas(CPUAllocator) static unsigned char room[sizeof(CPUAllocator)];
  [[maybe_unused]] static const bool has_cpu = [] {
    table[DeviceType::kCPU].store(new (room) CPUAllocator, std::memory_order_release);
    return true;
  }();
  return table;
}

}  // namespace detail

OPKIT_INLINE Allocator& GetAllocator(DeviceType type) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  Allocator* const allocator = detail::Allocators()[memory].load(std::memory_order_acquire);
  if (!allocator)
    Throw(ErrorCode::kUnsupported, "no allocator for device ", ToString(type),
          ": include its backend's header, or call SetAllocator");
  return *allocator;
}

OPKIT_INLINE Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  return detail::Allocators()[memory].exchange(allocator, std::memory_order_acq_rel);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ALLOCATOR_IPP_
