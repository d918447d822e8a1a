#include "opkit/device/native_stream.hpp"

#include <doctest/doctest.h>

#include "support/check_fails.hpp"

namespace native_stream_test {
using namespace opkit;

namespace {

constexpr auto kOwn = static_cast<DeviceType>(101);
void* g_stream = nullptr;

}  // namespace

TEST_CASE("a device's streams are used by what its header registers, and no other device's") {
  CHECK_FALSE(static_cast<bool>(FindNativeStreams(kOwn)));
  CHECK(RegisterNativeStreams(kOwn, [](Device device, void* stream, FunctionRef<void()> issue) {
    CHECK(device == Device{kOwn, 2});
    g_stream = stream;
    issue();
    g_stream = nullptr;
  }));
  int stream = 0;
  bool issued = false;
  FindNativeStreams(kOwn)({kOwn, 2}, &stream, [&] { issued = g_stream == &stream; });
  CHECK(issued);
  CHECK_FALSE(static_cast<bool>(FindNativeStreams(static_cast<DeviceType>(102))));
  CHECK_FALSE(static_cast<bool>(FindNativeStreams(static_cast<DeviceType>(-1))));
  RegisterNativeStreams(kOwn, nullptr);
  CheckFails([] { RegisterNativeStreams(static_cast<DeviceType>(128), nullptr); },
             "device type 128 is outside 0 to 127");
}

}  // namespace native_stream_test
