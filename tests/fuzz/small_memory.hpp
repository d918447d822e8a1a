// An allocator that has no memory for what a fuzzer's numbers ask for.
#ifndef OPKIT_TESTS_FUZZ_SMALL_MEMORY_HPP_
#define OPKIT_TESTS_FUZZ_SMALL_MEMORY_HPP_

#include "opkit/core/allocator.hpp"

class SmallMemory final : public opkit::Allocator {
 public:
  const char* name() const override { return "small memory"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    if (bytes > 64 << 20) return nullptr;
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t{64}, std::nothrow);
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ::operator delete(data, std::align_val_t{64});
  }
};

#endif  // OPKIT_TESTS_FUZZ_SMALL_MEMORY_HPP_
