// Replaces operator new by a function that counts its calls. Exactly one unit of a test program
// includes this header.
#ifndef OPKIT_TESTS_SUPPORT_COUNT_ALLOCATIONS_HPP_
#define OPKIT_TESTS_SUPPORT_COUNT_ALLOCATIONS_HPP_

#include <atomic>
#include <cstdlib>
#include <new>

#include "allocations.hpp"
#include "sanitizers.hpp"

namespace {

std::atomic<int64_t> g_allocations{0};

}  // namespace

int64_t Allocations() { return g_allocations.load(std::memory_order_relaxed); }

// ThreadSanitizer's own operator new cannot be replaced, so nothing is counted under it.
#ifndef OPKIT_TESTS_THREAD_SANITIZER

// The array forms call these.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment,
                                     const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* data = nullptr;
  return posix_memalign(&data, static_cast<size_t>(alignment), bytes) == 0 ? data : nullptr;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* data = ::operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  if (void* data = ::operator new(bytes, alignment, std::nothrow)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}

#endif  // OPKIT_TESTS_THREAD_SANITIZER

#endif  // OPKIT_TESTS_SUPPORT_COUNT_ALLOCATIONS_HPP_
