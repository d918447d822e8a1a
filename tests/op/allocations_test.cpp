#include "allocations.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {

std::atomic<int64_t> g_allocations{0};

}  // namespace

int64_t Allocations() { return g_allocations.load(std::memory_order_relaxed); }

// ThreadSanitizer has its own, which cannot be replaced: nothing is counted then.
#if defined(__SANITIZE_THREAD__)
#define COUNTS_NOTHING
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COUNTS_NOTHING
#endif
#endif
#ifndef COUNTS_NOTHING

// The array forms come down to these.
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

TEST_CASE("allocations are counted, those of aligned memory included") {
  struct alignas(256) Wide {
    char bytes[256];
  };
  const int64_t before = Allocations();
  const auto plain = std::make_unique<int>(1);
  const auto wide = std::make_unique<Wide>();
  const std::unique_ptr<char, void (*)(char*)> quiet(
      static_cast<char*>(::operator new(64, std::align_val_t{64}, std::nothrow)),
      [](char* dead) { ::operator delete(dead, std::align_val_t{64}); });
  CHECK(plain);
  CHECK(Allocations() - before == 3);
}

#endif  // COUNTS_NOTHING
