#include "opkit/op/check/guard_allocator.hpp"

#include <doctest/doctest.h>

#include "opkit/core/tensor.hpp"

namespace guard_allocator_test { namespace {

using opkit::DType;
using opkit::GetAllocator;
using opkit::GuardAllocator;
using opkit::GuardScope;
using opkit::Tensor;

TEST_CASE("memory comes filled, from the guard while its scope lives") {
  const opkit::Allocator* before = &GetAllocator(opkit::DeviceType::kCPU);
  {
    const GuardScope scope;
    CHECK(&GetAllocator(opkit::DeviceType::kCPU) == &GuardAllocator::Global());
    GuardAllocator::Global().SetPattern(0x11, 0xa5);
    Tensor tensor({3}, DType::kUInt8);
    for (const uint8_t byte : tensor.ToVector<uint8_t>()) CHECK(byte == 0x11);
    GuardAllocator::Global().SetPattern(0xff, 0xa5);
    CHECK(Tensor({1}, DType::kUInt8).ToVector<uint8_t>()[0] == 0xff);
  }
  CHECK(&GetAllocator(opkit::DeviceType::kCPU) == before);
}

TEST_CASE("bytes written before or behind a block are damage, reported once") {
  const GuardScope scope;
  Tensor tensor({8}, DType::kUInt8);
  auto* data = static_cast<char*>(tensor.raw_mutable_data());
  std::fill(data, data + 8, 'x');
  CHECK(GuardAllocator::Global().TakeDamage().empty());
  for (const int64_t at : {-1, -200, 8, 200}) {
    CAPTURE(at);
    data[at] = 'x';
    const auto damage = GuardAllocator::Global().TakeDamage();
    REQUIRE(damage.size() == 1);
    CHECK(damage[0].data == data);
    CHECK(damage[0].bytes == 8);
    CHECK(damage[0].before == (at < 0));
    CHECK(damage[0].after == (at > 0));
    CHECK(GuardAllocator::Global().TakeDamage().empty());
  }
}

TEST_CASE("damage to a block that is freed before the check is reported all the same") {
  const GuardScope scope;
  {
    Tensor tensor({8}, DType::kUInt8);
    static_cast<char*>(tensor.raw_mutable_data())[8] = 'x';
  }
  const auto damage = GuardAllocator::Global().TakeDamage();
  REQUIRE(damage.size() == 1);
  CHECK(damage[0].after);
  CHECK_FALSE(damage[0].before);
}

TEST_CASE("a scope begins without the damage of an earlier one") {
  Tensor outlives;
  {
    const GuardScope scope;
    outlives = Tensor({8}, DType::kUInt8);
    static_cast<char*>(outlives.raw_mutable_data())[8] = 'x';
  }
  const GuardScope scope;
  CHECK(GuardAllocator::Global().TakeDamage().empty());
}

}  // namespace
}  // namespace guard_allocator_test
