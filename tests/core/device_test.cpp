#include "opkit/core/device.hpp"

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <string>

#include "support/error_of.hpp"

namespace device_test { namespace {

using opkit::Device;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::MemoryDevice;
using opkit::RegisterDeviceType;

constexpr auto kNpu = static_cast<DeviceType>(80);
constexpr auto kShared = static_cast<DeviceType>(81);

TEST_CASE("device types have DLPack's numbers") {
  static_assert(static_cast<int>(DeviceType::kCPU) == kDLCPU);
  static_assert(static_cast<int>(DeviceType::kCUDA) == kDLCUDA);
  static_assert(static_cast<int>(DeviceType::kCUDAHost) == kDLCUDAHost);
  static_assert(static_cast<int>(DeviceType::kOpenCL) == kDLOpenCL);
  static_assert(static_cast<int>(DeviceType::kVulkan) == kDLVulkan);
  static_assert(static_cast<int>(DeviceType::kMetal) == kDLMetal);
  static_assert(static_cast<int>(DeviceType::kROCM) == kDLROCM);
  static_assert(static_cast<int>(DeviceType::kROCMHost) == kDLROCMHost);
  static_assert(static_cast<int>(DeviceType::kExtDev) == kDLExtDev);
  static_assert(static_cast<int>(DeviceType::kCUDAManaged) == kDLCUDAManaged);
  static_assert(static_cast<int>(DeviceType::kOneAPI) == kDLOneAPI);
  CHECK(Device{}.type == DeviceType::kCPU);
}

TEST_CASE("a device prints its type's name, and its index where that is not 0") {
  CHECK(ToString(Device{}) == "cpu");
  CHECK(ToString(Device{DeviceType::kCUDA, 0}) == "cuda");
  CHECK(ToString(Device{DeviceType::kCUDA, 1}) == "cuda:1");
  CHECK(ToString(Device{DeviceType::kCPUStream, 2}) == "cpu_stream:2");
  CHECK(ToString(static_cast<DeviceType>(99)) == "device_type_99");
}

TEST_CASE("devices are equal when type and index are") {
  CHECK(Device{DeviceType::kCUDA, 1} == Device{DeviceType::kCUDA, 1});
  CHECK(Device{DeviceType::kCUDA, 1} != Device{DeviceType::kCUDA, 0});
  CHECK(Device{DeviceType::kCUDA, 0} != Device{});
}

TEST_CASE("the host reaches the memory of some types, and of no unknown one") {
  CHECK(IsHostAccessible(DeviceType::kCPU));
  CHECK(IsHostAccessible(DeviceType::kCPUStream));
  CHECK(IsHostAccessible(DeviceType::kCUDAHost));
  CHECK(IsHostAccessible(DeviceType::kCUDAManaged));
  CHECK_FALSE(IsHostAccessible(DeviceType::kCUDA));
  CHECK_FALSE(IsHostAccessible(DeviceType::kROCM));
  CHECK_FALSE(IsHostAccessible(static_cast<DeviceType>(99)));
}

TEST_CASE("CPU streams keep their tensors in the one CPU's memory, others in their own") {
  CHECK(MemoryDevice({DeviceType::kCPUStream, 3}) == Device{});
  CHECK(MemoryDevice({DeviceType::kCPU, 0}) == Device{});
  CHECK(MemoryDevice({DeviceType::kCUDA, 1}) == Device{DeviceType::kCUDA, 1});
  CHECK(MemoryDevice({DeviceType::kROCM, 1}) == Device{DeviceType::kROCM, 1});
}

TEST_CASE("a user's device type has the name, memory and reach it was registered with") {
  CHECK(RegisterDeviceType(kNpu, {"npu", kNpu, false}) == kNpu);
  CHECK(ToString(Device{kNpu, 1}) == "npu:1");
  CHECK_FALSE(IsHostAccessible(kNpu));
  CHECK(MemoryDevice({kNpu, 1}) == Device{kNpu, 1});
  RegisterDeviceType(kShared, {"npu_host", kNpu, true});
  CHECK(IsHostAccessible(kShared));
  CHECK(MemoryDevice({kShared, 1}) == Device{kNpu, 1});
}

TEST_CASE("repeating a registration is harmless, a clash is an error that names both") {
  RegisterDeviceType(kNpu, {"npu", kNpu, false});
  RegisterDeviceType(kNpu, {"npu", kNpu, false});
  const auto other_name = ErrorOf([] { RegisterDeviceType(kNpu, {"tpu", kNpu, false}); });
  CHECK(other_name.code() == ErrorCode::kAlreadyExists);
  CHECK(other_name.message() == "device type 80 'tpu' clashes with 80 'npu'");
  const auto other_number = ErrorOf([] {
    RegisterDeviceType(static_cast<DeviceType>(82), {"cuda", kNpu, false});
  });
  CHECK(other_number.code() == ErrorCode::kAlreadyExists);
  CHECK(other_number.message() == "device type 82 'cuda' clashes with 2 'cuda'");
  CHECK(ToString(kNpu) == "npu");
  CHECK(ToString(static_cast<DeviceType>(82)) == "device_type_82");
}

}  // namespace
}  // namespace device_test
