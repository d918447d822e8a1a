// HostMemory: takes the memory of a library's tensors from its host's allocators. Included by
// definitions.
#ifndef OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_
#define OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_

#include <atomic>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "opkit/base/platform.hpp"
#include "opkit/core/allocator.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An allocator of this image that calls the host's current allocator.
class OPKIT_IMAGE_LOCAL HostMemory final : public Allocator {
 public:
  HostMemory(DeviceType type, Allocator& own) : type_(type), own_(own) {}
  const char* name() const override { return own_.name(); }

  // Replaces this image's allocators. Changes nothing if the program exports its symbols, so that
  // both images share one table of allocators.
  static void Use() {
    if (!OPKIT_ABI_HAS(g_host, span_begin)) return;
    void *memory = nullptr, *owner = nullptr;
    if (g_host->allocate(OPKIT_CPU, 0, kAlignment, &memory, &owner) != OPKIT_OK) return;
    g_host->deallocate(owner, memory, kAlignment);
    if (owner == &GetAllocator(DeviceType::kCPU)) return;
    constexpr DeviceType kTypes[] = {DeviceType::kCPU, DeviceType::kGPU};
    alignas(HostMemory) static unsigned char rooms[std::size(kTypes)][sizeof(HostMemory)];
    static bool used = false;
    if (std::exchange(used, true)) return;
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if (Allocator* const own = Allocators()[kTypes[i]].load())
        SetAllocator(kTypes[i], new (rooms[i]) HostMemory(kTypes[i], *own));
  }

 protected:
  void* DoAllocate(int64_t bytes) override { return DoAllocateOn(0, bytes); }
  void* DoAllocateOn(int32_t index, int64_t bytes) override {
    void *memory = nullptr, *owner = nullptr;
    const opkit_status status =
        g_host->allocate(static_cast<int32_t>(type_), index, bytes, &memory, &owner);
    if (status == OPKIT_UNSUPPORTED)  // the host has no such memory
      memory = own_.Allocate(bytes, index);
    else if (status == OPKIT_OUT_OF_MEMORY)
      return nullptr;
    else
      AcceptAnswer(status);
    void* none = nullptr;
    if (owner && (usual_.compare_exchange_strong(none, owner) || none == owner)) return memory;
    try {
      MutexLock lock(mutex_);
      others_.emplace_back(memory, owner);
      ++num_others_;
      return memory;
    } catch (...) {  // out of memory: the owner cannot be stored
      Free(owner, memory, bytes);
      return nullptr;
    }
  }
  void DoDeallocate(void* data, int64_t bytes) noexcept override {
    void* owner = usual_.load();
    if (num_others_.load() > 0) owner = Forget(data, owner);
    Free(owner, data, bytes);
  }

 private:
  void Free(void* owner, void* memory, int64_t bytes) noexcept {
    owner ? g_host->deallocate(owner, memory, bytes) : own_.Deallocate(memory, bytes);
  }
  // Removes the entry of `data` and returns its owner. If there is no entry, returns `usual`.
  void* Forget(const void* data, void* usual) {
    MutexLock lock(mutex_);
    for (auto& one : others_) {
      if (one.first != data) continue;
      void* const owner = one.second;
      one = others_.back();
      others_.pop_back();
      if (--num_others_ == 0) std::vector<std::pair<void*, void*>>().swap(others_);
      return owner;
    }
    return usual;
  }

  const DeviceType type_;
  Allocator& own_;
  std::atomic<void*> usual_{nullptr};  // the first owner, which nearly all memory has
  Mutex mutex_;                        // guards others_
  std::vector<std::pair<void*, void*>> others_;
  std::atomic<int64_t> num_others_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_
