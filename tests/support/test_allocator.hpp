// An allocator that replaces a device type's allocator while it lives. It gives out host memory,
// counts its calls, and fails for more bytes than a limit that the test sets.
#ifndef OPKIT_TESTS_SUPPORT_TEST_ALLOCATOR_HPP_
#define OPKIT_TESTS_SUPPORT_TEST_ALLOCATOR_HPP_

#include <cstdlib>

#include "opkit/core/allocator.hpp"

// Returns the bytes that the CPU's allocator has given out and not got back.
inline int64_t LiveBytes() { return opkit::GetAllocator(opkit::DeviceType::kCPU).live_bytes(); }

class TestAllocator final : public opkit::Allocator {
 public:
  explicit TestAllocator(opkit::DeviceType type = opkit::DeviceType::kCPU)
      : type_(type), before_(opkit::SetAllocator(type, this)) {}
  TestAllocator(const TestAllocator&) = delete;
  TestAllocator& operator=(const TestAllocator&) = delete;
  ~TestAllocator() override { opkit::SetAllocator(type_, before_); }

  const char* name() const override { return "test allocator"; }
  int allocations() const { return allocations_; }
  int deallocations() const { return deallocations_; }
  // Makes allocations of more bytes than this fail.
  void set_limit(int64_t bytes) { limit_ = bytes; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    if (bytes > limit_) return nullptr;
    ++allocations_;
    const auto rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    return std::aligned_alloc(opkit::kAlignment, rounded);
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ++deallocations_;
    std::free(data);
  }

 private:
  opkit::DeviceType type_;
  opkit::Allocator* before_;
  int64_t limit_ = INT64_MAX;
  std::atomic<int> allocations_{0}, deallocations_{0};
};

#endif  // OPKIT_TESTS_SUPPORT_TEST_ALLOCATOR_HPP_
