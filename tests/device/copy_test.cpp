#include "opkit/device/copy.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"
#include "support/gate.hpp"
#include "support/lists.hpp"
#include "support/test_allocator.hpp"

namespace copy_test { namespace {

using opkit::Copy;
using opkit::CopyAsync;
using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::Device;
using opkit::DeviceType;
using opkit::DType;
using opkit::ErrorCode;
using opkit::Event;
using opkit::Invocation;
using opkit::RegisterCopy;
using opkit::Shape;
using opkit::Tensor;

// A device whose memory the host must not touch, although it is ordinary host memory.
constexpr auto kFake = static_cast<DeviceType>(90);
constexpr auto kIsland = static_cast<DeviceType>(91);  // no copies lead there

struct Call {
  Device to, from;
  int64_t nbytes;
  void* stream;
  Invocation::Kind kind;
  friend bool operator==(const Call&, const Call&) = default;
};
std::vector<Call> calls;

void FakeCopy(void* to, Device to_device, const void* from, Device from_device, int64_t nbytes,
              void* stream) {
  calls.push_back({to_device, from_device, nbytes, stream, opkit::CurrentInvocation().kind});
  std::memcpy(to, from, static_cast<size_t>(nbytes));
}
void FakeStridedCopy(const Tensor& source, void* target, void* stream) {
  const Device device = source.device();
  calls.push_back({device, device, source.nbytes(), stream, opkit::CurrentInvocation().kind});
  const auto* from = static_cast<const float*>(source.raw_data());
  auto* to = static_cast<float*>(target);
  for (int64_t row = 0; row < source.dim(0); ++row)
    for (int64_t column = 0; column < source.dim(1); ++column)
      *to++ = from[row * source.strides()[0] + column * source.strides()[1]];
}
void FailingCopy(void*, Device, const void*, Device, int64_t, void*) {
  throw std::runtime_error("the bus is down");
}

// The fake device, for the life of a test.
struct FakeDevice {
  FakeDevice() {
    opkit::RegisterDeviceType(kFake, {"fake", kFake, false});
    opkit::RegisterDeviceType(kIsland, {"island", kIsland, false});
    RegisterCopy(DeviceType::kCPU, kFake, &FakeCopy);
    RegisterCopy(kFake, DeviceType::kCPU, &FakeCopy);
    RegisterCopy(kFake, kFake, &FakeCopy);
    calls.clear();
  }
  ~FakeDevice() {
    RegisterCopy(DeviceType::kCPU, kFake, nullptr);
    RegisterCopy(kFake, DeviceType::kCPU, nullptr);
    RegisterCopy(kFake, kFake, nullptr);
  }
  TestAllocator allocator{kFake};
};

Tensor Numbers(const Shape& shape) {
  Floats values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(i));
  return Tensor::From<float>(shape, values);
}
Floats Read(const Tensor& tensor) {
  Tensor host;
  Copy(tensor, &host);
  return host.ToVector<float>();
}

TEST_CASE("a copy on the host needs nothing registered") {
  const Tensor source = Numbers({2, 3});
  Tensor target({DeviceType::kCPUStream, 1});
  Copy(source, &target);
  CHECK(target.shape() == Shape{2, 3});
  CHECK(target.device() == Device{DeviceType::kCPUStream, 1});
  CHECK(target.raw_data() != source.raw_data());
  CHECK(target.ToVector<float>() == source.ToVector<float>());
  Tensor pinned(Device{DeviceType::kCUDAHost, 0});
  TestAllocator allocator(DeviceType::kCUDAHost);
  Copy(source, &pinned);
  CHECK(pinned.device().type == DeviceType::kCUDAHost);
  CHECK(pinned.ToVector<float>() == source.ToVector<float>());
  pinned.Reset();
}

TEST_CASE("tensors go to a device, between its peers, and back") {
  FakeDevice fake;
  const Tensor source = Numbers({2, 3});
  const Device first{kFake, 0}, second{kFake, 1};
  Tensor there(first), peer(second), back;
  Copy(source, &there);
  Copy(there, &peer);
  Copy(peer, &back);
  CHECK(there.device() == first);
  CHECK(peer.device() == second);
  CHECK(peer.storage()->device() == second);
  CHECK(back.device() == Device{});
  CHECK(back.ToVector<float>() == source.ToVector<float>());
  CHECK(calls == std::vector<Call>{{first, {}, 24, nullptr, Invocation::Kind::kCopy},
                                   {second, first, 24, nullptr, Invocation::Kind::kCopy},
                                   {{}, second, 24, nullptr, Invocation::Kind::kCopy}});
  CHECK(opkit::CurrentInvocation().kind == Invocation::Kind::kNone);
}

TEST_CASE("between two accelerators without a copy of their own tensors go through the host") {
  FakeDevice fake;
  TestAllocator allocator(kIsland);
  RegisterCopy(DeviceType::kCPU, kIsland, &FakeCopy);
  RegisterCopy(kIsland, DeviceType::kCPU, &FakeCopy);
  const Device from{kFake, 1}, to{kIsland, 2};
  {
    Tensor there(from), island(to);
    Copy(Numbers({2, 3}), &there);
    calls.clear();
    Copy(there, &island);
    CHECK(calls == std::vector<Call>{{{}, from, 24, nullptr, Invocation::Kind::kCopy},
                                     {to, {}, 24, nullptr, Invocation::Kind::kCopy}});
    CHECK(Read(island) == Floats{0, 1, 2, 3, 4, 5});
    int stream = 0;
    CHECK(ErrorOf([&] {
            opkit::detail::CopyThroughHost(island.raw_mutable_data(), to, there.raw_data(), from,
                                           24, &stream);
          }).code() == ErrorCode::kUnsupported);
  }
  RegisterCopy(DeviceType::kCPU, kIsland, nullptr);
  RegisterCopy(kIsland, DeviceType::kCPU, nullptr);
}

TEST_CASE("a copy within one device goes through its own function") {
  FakeDevice fake;
  const Device device{kFake, 0};
  Tensor a(device), b(device);
  Copy(Numbers({4}), &a);
  Copy(a, &b);
  CHECK(a.raw_data() != b.raw_data());
  CHECK(Read(b) == Floats{0, 1, 2, 3});
}

TEST_CASE("the target is resized, takes the dtype and reuses its memory") {
  FakeDevice fake;
  Tensor target({100}, DType::kInt8, {kFake, 0});
  const void* data = target.raw_data();
  Copy(Numbers({5}), &target);
  CHECK(target.dtype() == DType::kFloat32);
  CHECK(target.raw_data() == data);
  CHECK(Read(target) == Floats{0, 1, 2, 3, 4});
  Copy(Numbers({26}), &target);
  CHECK(target.raw_data() != data);
  Copy(target, &target);  // nothing to do
  CHECK(target.numel() == 26);
}

TEST_CASE("strided sources on the host arrive dense") {
  FakeDevice fake;
  const Tensor source = Numbers({2, 3});
  Tensor target(Device{kFake, 0});
  Copy(source.Permute({1, 0}), &target);
  CHECK(target.is_dense());
  CHECK(Read(target) == Floats{0, 3, 1, 4, 2, 5});
  CHECK(calls[0].nbytes == 24);
  Tensor host;
  Copy(source.Slice(1, 1, 2), &host);
  CHECK(host.ToVector<float>() == Floats{1, 4});
}

TEST_CASE("overlapping source and target: the target takes new memory") {
  FakeDevice fake;
  Tensor there(Device{kFake, 0});
  Copy(Numbers({6}), &there);
  Tensor target = there;
  Copy(there.Slice(0, 1, 6), &target);
  CHECK(Read(target) == Floats{1, 2, 3, 4, 5});
  CHECK(Read(there) == Floats{0, 1, 2, 3, 4, 5});
}

TEST_CASE("an empty tensor is copied without a call") {
  FakeDevice fake;
  Tensor target(Device{kFake, 0});
  Copy(Tensor({0, 3}, DType::kInt16), &target);
  CHECK(target.shape() == Shape{0, 3});
  CHECK(target.dtype() == DType::kInt16);
  CHECK(calls.empty());
}

// A failed copy leaves the target as it was.
template <class F>
opkit::Error FailsUnchanged(const Tensor& target, F&& copy) {
  const Tensor before = target;
  const opkit::Error error = ErrorOf(copy);
  CHECK(target.shape() == before.shape());
  CHECK(target.dtype() == before.dtype());
  CHECK(target.raw_data() == before.raw_data());
  CHECK(target.device() == before.device());
  CHECK(target.capacity() == before.capacity());
  return error;
}

TEST_CASE("a missing route is an error that names both devices and the registered routes") {
  FakeDevice fake;
  const Tensor source = Numbers({2});
  Tensor target(Device{kIsland, 1});
  const auto error = FailsUnchanged(target, [&] { Copy(source, &target); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.subject() == &source);
  CHECK(error.message() ==
        "cannot copy tensor float32[2] on cpu to island:1: no copy from cpu to island is "
        "registered, only [cpu to fake, fake to cpu, fake to fake]; include its backend's header, "
        "or call RegisterCopy");
  Tensor there(Device{kFake, 0});
  Copy(source, &there);
  Tensor vulkan(Device{DeviceType::kVulkan, 0});
  CHECK(Contains(FailsUnchanged(vulkan, [&] { Copy(there, &vulkan); }).message(),
                 "cannot copy tensor float32[2] on fake to vulkan: no copy from fake to vulkan"));
  CPUContext cpu;
  CHECK(FailsUnchanged(target, [&] { CopyAsync(cpu, source, &target); }).code() ==
        ErrorCode::kUnsupported);
}

TEST_CASE("strided elements are copied on their device, to where they go or before they leave it") {
  FakeDevice fake;
  CHECK((opkit::RegisterStridedCopy(kFake, &FakeStridedCopy) == nullptr));
  Tensor there(Device{kFake, 0}), host, other(Device{kFake, 1});
  Copy(Tensor::From<float>({2, 2}, {1, 2, 3, 4}), &there);
  const Tensor turned = there.Permute({1, 0});
  const std::vector<float> expected{1, 3, 2, 4};
  const Device on{kFake, 0};
  const Call gather{on, on, 16, nullptr, Invocation::Kind::kCopy};

  calls.clear();
  Copy(turned, &host);
  CHECK(host.ToVector<float>() == expected);
  CHECK(calls == std::vector<Call>{gather, {{}, on, 16, nullptr, Invocation::Kind::kCopy}});
  calls.clear();
  const Tensor dense = turned.Contiguous();
  CHECK(dense.is_dense());
  CHECK(dense.device() == on);
  CHECK(calls == std::vector<Call>{gather});
  Copy(dense, &host);
  CHECK(host.ToVector<float>() == expected);
  Copy(turned, &other);
  Copy(other, &host);
  CHECK(host.ToVector<float>() == expected);
  Tensor none(Device{kFake, 0});
  Copy(turned.Slice(0, 1, 1), &none);
  CHECK(none.shape() == Shape{0, 2});

  CHECK((opkit::RegisterStridedCopy(kFake, nullptr) == &FakeStridedCopy));
  CHECK_THROWS_WITH(turned.Contiguous(), doctest::Contains("RegisterStridedCopy"));
}

TEST_CASE("a source that cannot be read or held leaves the target unchanged") {
  FakeDevice fake;
  Tensor target(Device{kFake, 0});
  Copy(Numbers({4}), &target);
  Tensor unwritten;
  unwritten.Resize({2});
  const auto error = FailsUnchanged(target, [&] { Copy(unwritten, &target); });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(error.subject() == &unwritten);
  CHECK(Contains(error.message(), "is copied before anything was written to it"));

  const Tensor on_device = target.View({2, 2});
  Tensor host = Numbers({3});
  const auto strided = FailsUnchanged(host, [&] { Copy(on_device.Permute({1, 0}), &host); });
  CHECK(strided.code() == ErrorCode::kUnsupported);
  CHECK(Contains(strided.message(), "no copy of strided elements within fake is registered; link"));
  const Tensor blocked = Tensor::FromLayout(opkit::AllocateStorage({}, 64), {2, 2}, DType::kFloat32,
                                            opkit::Layout{3, {}});
  CHECK(FailsUnchanged(target, [&] { Copy(blocked, &target); }).code() == ErrorCode::kUnsupported);

  fake.allocator.set_limit(64);
  CHECK(FailsUnchanged(target, [&] { Copy(Numbers({17}), &target); }).code() ==
        ErrorCode::kOutOfMemory);
  RegisterCopy(DeviceType::kCPU, kFake, &FailingCopy);
  const Tensor source = Numbers({4, 1});
  try {
    Copy(source, &target);
    FAIL("nothing was thrown");
  } catch (const std::runtime_error& failure) {
    CHECK(std::string(failure.what()) == "the bus is down");
  }
  CHECK(target.shape() == Shape{4});
}

TEST_CASE("registering again replaces, and returns the earlier registration") {
  FakeDevice fake;
  CHECK((RegisterCopy(DeviceType::kCPU, kFake, &FailingCopy) == &FakeCopy));
  CHECK((RegisterCopy(DeviceType::kCPUStream, kFake, &FakeCopy) == &FailingCopy));  // same memory
  CHECK((RegisterCopy(DeviceType::kCPU, kFake, nullptr) == &FakeCopy));
  CHECK((RegisterCopy(DeviceType::kCPU, kFake, nullptr) == nullptr));
  Tensor target(Device{kFake, 0});
  CHECK(ErrorOf([&] { Copy(Numbers({1}), &target); }).code() == ErrorCode::kUnsupported);
  // A function for host memory takes the place of the built-in one.
  CHECK((RegisterCopy(DeviceType::kCPU, DeviceType::kCPU, &FakeCopy) == nullptr));
  Tensor host;
  Copy(Numbers({2}), &host);
  CHECK(calls.size() == 1);
  CHECK((RegisterCopy(DeviceType::kCPU, DeviceType::kCPU, nullptr) == &FakeCopy));
}

TEST_CASE("an asynchronous copy on the CPU is done at once") {
  FakeDevice fake;
  CPUContext cpu;
  Tensor target(Device{kFake, 0});
  CopyAsync(cpu, Numbers({3}), &target);
  CHECK(calls.size() == 1);
  CHECK(Read(target) == Floats{0, 1, 2});
}

TEST_CASE("on a CPU stream the copy takes its place in the order, and keeps both memories") {
  FakeDevice fake;
  TestAllocator cpu;
  Gate gate;
  CPUStreamContext context({DeviceType::kCPUStream, 0});
  context.SwitchToDevice(1);
  Floats result;
  {
    Tensor source = Numbers({2, 2});
    Tensor target(Device{kFake, 0}), back;
    context.Launch([&gate, data = source.mutable_data<float>()] {
      gate.Pass();
      data[1] = 7;  // what the copy has to see
    });
    CopyAsync(context, source.Permute({1, 0}), &target);
    CHECK(target.shape() == Shape{2, 2});
    CHECK(target.initialized());
    CopyAsync(context, target, &back);
    CHECK(calls.empty());
    context.Launch([&result, back] { result = back.ToVector<float>(); });
  }
  CHECK(cpu.live_bytes() == 32);
  CHECK(fake.allocator.live_bytes() == 16);
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(result == Floats{0, 2, 7, 3});
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].kind == Invocation::Kind::kCopy);
  CHECK(calls[0].stream == nullptr);
  CHECK(cpu.live_bytes() == 0);
  CHECK(fake.allocator.live_bytes() == 0);
}

TEST_CASE("a copy that fails on a CPU stream fails the event behind it") {
  FakeDevice fake;
  RegisterCopy(DeviceType::kCPU, kFake, &FailingCopy);
  CPUStreamContext context({DeviceType::kCPUStream, 0});
  Tensor target(Device{kFake, 0});
  CopyAsync(context, Numbers({2}), &target);
  CHECK_THROWS_WITH_AS(context.FinishDeviceComputation(), "the bus is down", std::runtime_error);
}

// A context of a device with streams of its own.
class NativeContext {
 public:
  static constexpr DeviceType kDeviceType = kFake;
  static constexpr bool kAsynchronous = true;
  explicit NativeContext(Device device) : device_(device) {}
  Device device() const { return device_; }
  void SwitchToDevice(int) {}
  void Record(Event&) {}
  void WaitEvent(const Event&) {}
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }
  int* native_stream() { return &stream_; }  // any pointer

 private:
  Device device_;
  int stream_ = 0;
};

TEST_CASE("on a native stream the copy function gets that stream") {
  FakeDevice fake;
  NativeContext context({kFake, 1});
  const Tensor source = Numbers({2, 2});
  Tensor target(Device{kFake, 1});
  CopyAsync(context, source, &target);
  CHECK(calls ==
        std::vector<Call>{{{kFake, 1}, {}, 16, context.native_stream(), Invocation::Kind::kCopy}});
  const auto error = FailsUnchanged(target, [&] {
    CopyAsync(context, source.Permute({1, 0}), &target);
  });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "on a native stream because it has strides; call Contiguous()"));
}

}  // namespace
}  // namespace copy_test
