#include "opkit/core/allocator.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "support/error_of.hpp"
#include "support/test_allocator.hpp"

namespace allocator_test { namespace {

using opkit::Allocator;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::GetAllocator;
using opkit::kAlignment;
using opkit::SetAllocator;

TEST_CASE("CPU memory of every size is aligned to 64 bytes") {
  Allocator& cpu = GetAllocator(DeviceType::kCPU);
  for (int64_t bytes : {1, 3, 63, 64, 65, 1000, 1 << 20}) {
    CAPTURE(bytes);
    void* data = cpu.Allocate(bytes);
    CHECK(reinterpret_cast<uintptr_t>(data) % kAlignment == 0);
    std::memset(data, 1, static_cast<size_t>(bytes));
    cpu.Deallocate(data, bytes);
  }
}

TEST_CASE("0 bytes are a null pointer, and giving that back is fine") {
  Allocator& cpu = GetAllocator(DeviceType::kCPU);
  const int64_t live = cpu.live_bytes();
  CHECK(cpu.Allocate(0) == nullptr);
  cpu.Deallocate(nullptr, 0);
  CHECK(cpu.live_bytes() == live);
}

TEST_CASE("an allocator counts the live bytes and their peak") {
  TestAllocator allocator;
  void* a = allocator.Allocate(100);
  CHECK(allocator.live_bytes() == 100);
  void* b = allocator.Allocate(28);
  CHECK(allocator.live_bytes() == 128);
  allocator.Deallocate(a, 100);
  CHECK(allocator.live_bytes() == 28);
  CHECK(allocator.peak_bytes() == 128);
  allocator.ResetPeak();
  CHECK(allocator.peak_bytes() == 28);
  void* c = allocator.Allocate(10);
  CHECK(allocator.peak_bytes() == 38);
  allocator.Deallocate(b, 28);
  allocator.Deallocate(c, 10);
  CHECK(allocator.live_bytes() == 0);
  CHECK(allocator.peak_bytes() == 38);
  CHECK(allocator.deallocations() == 3);
}

TEST_CASE(
    "out of memory is an error that says how much was asked for and lives; nothing is counted") {
  TestAllocator allocator;
  void* kept = allocator.Allocate(40);
  allocator.set_limit(1000);
  const auto error = ErrorOf([&] { allocator.Allocate(1001); });
  CHECK(error.code() == ErrorCode::kOutOfMemory);
  CHECK(error.message() ==
        "out of memory on test allocator: 1001 bytes were asked for while 40 bytes are in use");
  CHECK(allocator.live_bytes() == 40);
  CHECK(allocator.peak_bytes() == 40);
  allocator.Deallocate(kept, 40);
}

TEST_CASE("allocators are pluggable: the one before is returned and can be put back") {
  Allocator* cpu = &GetAllocator(DeviceType::kCPU);
  {
    TestAllocator mine;
    CHECK(&GetAllocator(DeviceType::kCPU) == &mine);
    {
      TestAllocator inner;
      CHECK(SetAllocator(DeviceType::kCPU, &inner) == &inner);
    }
    CHECK(&GetAllocator(DeviceType::kCPU) == &mine);
  }
  CHECK(&GetAllocator(DeviceType::kCPU) == cpu);
}

TEST_CASE("CPU streams have the CPU's allocator, which can be set through either") {
  CHECK(&GetAllocator(DeviceType::kCPUStream) == &GetAllocator(DeviceType::kCPU));
  TestAllocator mine(DeviceType::kCPUStream);
  CHECK(&GetAllocator(DeviceType::kCPU) == &mine);
}

TEST_CASE("a device without an allocator is an error with a remedy") {
  const auto error = ErrorOf([] { GetAllocator(DeviceType::kVulkan); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        "no allocator for device vulkan: include its backend's header, or call SetAllocator");
  CHECK(ErrorOf([] { GetAllocator(static_cast<DeviceType>(128)); }).message() ==
        "device type 128 is outside 0 to 127");
  CHECK(ErrorOf([] { SetAllocator(static_cast<DeviceType>(-1), nullptr); }).code() ==
        ErrorCode::kOutOfRange);
}

TEST_CASE("counts are right when many threads allocate") {
  for (int threads : {1, 2, 8}) {
    TestAllocator allocator;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          void* data = allocator.Allocate(16);
          CHECK(allocator.live_bytes() >= 16);
          allocator.Deallocate(data, 16);
        }
      });
    for (auto& worker : workers) worker.join();
    CHECK(allocator.live_bytes() == 0);
    CHECK(allocator.peak_bytes() >= 16);
    CHECK(allocator.peak_bytes() <= 16 * threads);
    CHECK(allocator.allocations() == 500 * threads);
  }
}

}  // namespace
}  // namespace allocator_test
