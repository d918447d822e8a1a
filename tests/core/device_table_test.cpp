#include "opkit/core/device_table.hpp"

#include <doctest/doctest.h>

#include "support/check_fails.hpp"

namespace device_table_test { namespace {

using namespace opkit;

TEST_CASE("each device type has a pointer of its own, null at first") {
  detail::DeviceTable<const char*> table;
  table[DeviceType::kCUDA] = "cuda";
  table[static_cast<DeviceType>(127)] = "last";
  CHECK(table.Find(DeviceType::kCPU) == nullptr);
  CHECK(table.Find(DeviceType::kCUDA) == std::string("cuda"));
  CHECK(table.Find(static_cast<DeviceType>(127)) == std::string("last"));
}

TEST_CASE("a type outside of the table has no pointer, and none can be stored for it") {
  detail::DeviceTable<const char*> table;
  for (const int type : {-1, 128}) {
    CHECK(table.Find(static_cast<DeviceType>(type)) == nullptr);
    CheckFails([&] { table[static_cast<DeviceType>(type)] = "no"; }, "is outside 0 to 127");
  }
}

}  // namespace
}  // namespace device_table_test
