#include <doctest/doctest.h>

#include <memory>

#include "support/count_allocations.hpp"

#ifndef OPKIT_TESTS_THREAD_SANITIZER

TEST_CASE("allocations are counted, including those of aligned memory") {
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

#endif  // OPKIT_TESTS_THREAD_SANITIZER
