#include "opkit/core/storage.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "support/error_of.hpp"
#include "support/test_allocator.hpp"

namespace storage_test { namespace {

using opkit::AdoptStorage;
using opkit::AllocateStorage;
using opkit::Device;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Storage;

TEST_CASE("a storage frees its bytes with the last handle") {
  TestAllocator allocator;
  {
    Storage storage = AllocateStorage({}, 100);
    CHECK(storage->nbytes() == 100);
    CHECK(storage->device() == Device{});
    CHECK(reinterpret_cast<uintptr_t>(storage->data()) % 64 == 0);
    Storage second = storage;
    storage = {};
    CHECK(allocator.live_bytes() == 100);
  }
  CHECK(allocator.live_bytes() == 0);
  CHECK(allocator.deallocations() == 1);
}

TEST_CASE("a storage goes back to the allocator it came from, also when that was replaced since") {
  TestAllocator first;
  Storage storage = AllocateStorage({}, 64);
  {
    TestAllocator second;
    storage = {};
    CHECK(second.deallocations() == 0);
  }
  CHECK(first.deallocations() == 1);
}

TEST_CASE("an empty storage holds no memory") {
  TestAllocator allocator;
  const Storage storage = AllocateStorage({}, 0);
  CHECK(storage->data() == nullptr);
  CHECK(storage->nbytes() == 0);
  CHECK(allocator.allocations() == 0);
}

TEST_CASE("foreign memory is given to its deleter once, with its context") {
  struct Owner {
    void* freed = nullptr;
    int calls = 0;
  } owner;
  int value = 7;
  {
    Storage storage = AdoptStorage(
        {DeviceType::kCUDA, 1}, &value, sizeof value,
        [](void* data, void* context) {
          static_cast<Owner*>(context)->freed = data;
          ++static_cast<Owner*>(context)->calls;
        },
        &owner);
    CHECK(storage->data() == &value);
    CHECK(storage->device() == Device{DeviceType::kCUDA, 1});
    const Storage second = storage;
    storage = {};
    CHECK(owner.calls == 0);
  }
  CHECK(owner.calls == 1);
  CHECK(owner.freed == &value);
  AdoptStorage({}, &value, sizeof value);  // without a deleter the caller keeps it
  CHECK(value == 7);
}

TEST_CASE("without memory there is an Error and no storage") {
  TestAllocator allocator;
  allocator.set_limit(10);
  CHECK(ErrorOf([] { AllocateStorage({}, 11); }).code() == ErrorCode::kOutOfMemory);
  CHECK(allocator.live_bytes() == 0);
  CHECK(ErrorOf([] {
          AllocateStorage({DeviceType::kVulkan, 0}, 1);
        }).code() == ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace storage_test
