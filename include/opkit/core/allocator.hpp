// Allocator: where a storage's bytes come from. One per memory device, replaceable at run time; it
// counts what lives and the peak. Backends register theirs; the CPU's is here.
#ifndef OPKIT_CORE_ALLOCATOR_HPP_
#define OPKIT_CORE_ALLOCATOR_HPP_

#include <atomic>
#include <new>

#include "opkit/core/device.hpp"

namespace opkit::inline OPKIT_ABI {

inline constexpr int64_t kAlignment = 64;  // bytes; a cache line, and an AVX-512 register

// Thread-safe. An allocator must outlive its memory; those given to SetAllocator live for ever.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // At least `bytes` bytes aligned to kAlignment, or an Error (kOutOfMemory) that says how much was
  // asked for and how much lives. 0 bytes is a null pointer. `index` is the device's among those of
  // its type.
  void* Allocate(int64_t bytes, int32_t index = 0) {
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
    return data;
  }
  void Deallocate(void* data, int64_t bytes) noexcept {
    if (!data) return;
    live_.fetch_sub(bytes, std::memory_order_relaxed);
    DoDeallocate(data, bytes);
  }

  virtual const char* name() const = 0;
  int64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void ResetPeak() { peak_.store(live_bytes(), std::memory_order_relaxed); }

 protected:
  virtual void* DoAllocate(int64_t bytes) = 0;  // null when there is no memory
  // For a type with several devices, each with memory of its own.
  virtual void* DoAllocateOn(int32_t /*index*/, int64_t bytes) { return DoAllocate(bytes); }
  virtual void DoDeallocate(void* data, int64_t bytes) noexcept = 0;

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

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

namespace detail {
// Devices are few: a fixed table by device type, read without a lock.
struct AllocatorTable {
  static constexpr int kSlots = 128;
  std::atomic<Allocator*> slots[kSlots];
  alignas(CPUAllocator) unsigned char cpu[sizeof(CPUAllocator)];
  AllocatorTable() {
    for (auto& slot : slots) slot.store(nullptr, std::memory_order_relaxed);
    slots[static_cast<int>(DeviceType::kCPU)].store(new (cpu) CPUAllocator,
                                                    std::memory_order_relaxed);
  }
  std::atomic<Allocator*>& operator[](DeviceType type) {
    const int slot = static_cast<int>(type);
    if (slot < 0 || slot >= kSlots)
      Throw(ErrorCode::kOutOfRange, "device type ", slot, " is outside 0 to ", kSlots - 1);
    return slots[slot];
  }
};
inline AllocatorTable& Allocators() {
  // Never destroyed: it outlives every static tensor. In place: what a library that is unloaded has
  // on the heap would be lost.
  alignas(AllocatorTable) static unsigned char room[sizeof(AllocatorTable)];
  static auto* table = new (room) AllocatorTable;
  return *table;
}
}  // namespace detail

// The allocator of the device's memory. Error (kUnsupported) where no backend brought one.
inline Allocator& GetAllocator(DeviceType type) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  Allocator* allocator = detail::Allocators()[memory].load(std::memory_order_acquire);
  if (!allocator)
    Throw(ErrorCode::kUnsupported, "no allocator for device ", ToString(type),
          ": include its backend's header, or call SetAllocator");
  return *allocator;
}

// Replaces the allocator of the device's memory for new storages and returns the one before (null
// if none). `allocator` must live until the process ends or every storage made from it is gone.
inline Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  return detail::Allocators()[memory].exchange(allocator, std::memory_order_acq_rel);
}

}  // namespace opkit

#endif  // OPKIT_CORE_ALLOCATOR_HPP_
