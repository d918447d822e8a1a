// Allocator: allocates the bytes of every Storage. Each device type with its own memory has one
// allocator, which counts live and peak bytes and can be replaced at run time. Backends register
// their allocators; the CPU's allocator is here.
#ifndef OPKIT_CORE_ALLOCATOR_HPP_
#define OPKIT_CORE_ALLOCATOR_HPP_

#include <atomic>
#include <new>

#include "opkit/core/device.hpp"
#include "opkit/core/device_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// bytes: the size of a cache line and of an AVX-512 register
inline constexpr int64_t kAlignment = 64;

// Allocates the memory of one device type. Thread-safe. An allocator must outlive its memory (see
// SetAllocator).
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Returns at least `bytes` bytes aligned to kAlignment; a null pointer for 0 bytes. Error
  // (kOutOfMemory) with the requested and the live bytes. `index` is the device's number among
  // those of its type.
  void* Allocate(int64_t bytes, int32_t index = 0);
  void Deallocate(void* data, int64_t bytes) noexcept;

  virtual const char* name() const = 0;
  int64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void ResetPeak() { peak_.store(live_bytes(), std::memory_order_relaxed); }

 protected:
  virtual void* DoAllocate(int64_t bytes) = 0;  // null when there is no memory
  // Allocates on the device `index`, for a type whose devices each have memory of their own.
  virtual void* DoAllocateOn(int32_t /*index*/, int64_t bytes) { return DoAllocate(bytes); }
  virtual void DoDeallocate(void* data, int64_t bytes) noexcept = 0;

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

namespace detail {

// Receives every allocation and deallocation. A sink lives as long as the process.
class MemorySink {
 public:
  // `bytes` were allocated, or freed if negative; `live` bytes are now in use.
  virtual void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept = 0;

 protected:
  ~MemorySink() = default;
};

inline constinit std::atomic<MemorySink*> g_memory_sink{nullptr};

class CPUAllocator final : public Allocator {
 public:
  const char* name() const override { return "cpu"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t{kAlignment}, std::nothrow);
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ::operator delete(data, std::align_val_t{kAlignment});
  }
};

// Returns the allocators by device type, the CPU's from the beginning.
DeviceTable<Allocator*>& Allocators();
}  // namespace detail

// Returns the allocator of the device type's memory. Error (kUnsupported) if no backend has set
// one.
Allocator& GetAllocator(DeviceType type);

// Replaces the allocator of the device's memory for new storages. Returns the previous allocator,
// or null. `allocator` must live until the process ends or every storage made from it is gone.
Allocator* SetAllocator(DeviceType type, Allocator* allocator);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/allocator.ipp"
#endif

#endif  // OPKIT_CORE_ALLOCATOR_HPP_
