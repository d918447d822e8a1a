// GuardAllocator: allocates memory between fences and fills it with garbage. This reveals a kernel
// that writes or reads outside its tensors, or reads bytes that were never written. It replaces the
// CPU's allocator while an operator is checked.
#ifndef OPKIT_OP_CHECK_GUARD_ALLOCATOR_HPP_
#define OPKIT_OP_CHECK_GUARD_ALLOCATOR_HPP_

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/core/allocator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The allocator of CheckOperator. Thread-safe. Never destroyed, because its memory may live as long
// as the process.
class GuardAllocator final : public Allocator {
 public:
  // A block whose fence was overwritten; `data` may already be freed.
  struct Damage {
    const void* data = nullptr;
    int64_t bytes = 0;
    bool before = false, after = false;
  };

  static GuardAllocator& Global() {
    static auto* allocator = new GuardAllocator;
    return *allocator;
  }
  const char* name() const override { return "guarded cpu"; }

  // Sets the byte that fills new blocks, and the byte of the fences around them. 0xff is NaN for
  // every floating-point dtype.
  void SetPattern(uint8_t fill, uint8_t fence) {
    std::lock_guard lock(mutex_);
    fill_ = fill;
    fence_ = fence;
  }
  // Returns the damage since the last call, to live and to freed blocks.
  std::vector<Damage> TakeDamage() {
    std::lock_guard lock(mutex_);
    std::vector<Damage> out = std::exchange(freed_damage_, {});
    for (auto& [data, block] : blocks_)
      if (const Damage damage = Inspect(data, block); damage.before || damage.after) {
        out.push_back(damage);
        std::memset(Front(data), block.fence, kFence);
        std::memset(static_cast<char*>(data) + block.bytes, block.fence, kFence);
      }
    return out;
  }

 protected:
  void* DoAllocate(int64_t bytes) override {
    auto* base = static_cast<char*>(::operator new(static_cast<size_t>(bytes) + 2 * kFence,
                                                   std::align_val_t{kAlignment}, std::nothrow));
    if (!base) return nullptr;
    std::lock_guard lock(mutex_);
    std::memset(base, fence_, kFence);
    std::memset(base + kFence, fill_, static_cast<size_t>(bytes));
    std::memset(base + kFence + bytes, fence_, kFence);
    blocks_[base + kFence] = {bytes, fence_};
    return base + kFence;
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    {
      std::lock_guard lock(mutex_);
      const auto it = blocks_.find(data);
      const Damage damage = Inspect(data, it->second);
      if (damage.before || damage.after) freed_damage_.push_back(damage);
      blocks_.erase(it);
    }
    ::operator delete(Front(data), std::align_val_t{kAlignment});
  }

 private:
  struct Block {
    int64_t bytes;
    uint8_t fence;
  };
  static constexpr size_t kFence = 256;  // a multiple of kAlignment

  static char* Front(void* data) { return static_cast<char*>(data) - kFence; }
  static bool Broken(const char* fence, uint8_t value) {
    return detail::Index(std::count(fence, fence + kFence, static_cast<char>(value))) != kFence;
  }
  static Damage Inspect(void* data, const Block& block) {
    return {data, block.bytes, Broken(Front(data), block.fence),
            Broken(static_cast<char*>(data) + block.bytes, block.fence)};
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::vector<Damage> freed_damage_;
  uint8_t fill_ = 0xff, fence_ = 0xa5;
};

// Makes the GuardAllocator the allocator of CPU memory while the scope lives; one scope at a time.
class GuardScope {
 public:
  GuardScope()
      : lock_(Mutex()), previous_(SetAllocator(DeviceType::kCPU, &GuardAllocator::Global())) {
    static_cast<void>(GuardAllocator::Global().TakeDamage());
  }
  ~GuardScope() { SetAllocator(DeviceType::kCPU, previous_); }

 private:
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }
  std::lock_guard<std::mutex> lock_;
  Allocator* previous_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_CHECK_GUARD_ALLOCATOR_HPP_
