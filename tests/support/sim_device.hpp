// A simulated accelerator: a device type with copies and synchronous operators. Its memory is the
// host's, but counts as inaccessible from the host. Tests can make the device unavailable.
#ifndef OPKIT_TESTS_SUPPORT_SIM_DEVICE_HPP_
#define OPKIT_TESTS_SUPPORT_SIM_DEVICE_HPP_

#include <cstring>

#include "opkit/device/context.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/op/operator.hpp"
#include "support/test_allocator.hpp"

namespace sim_device {

using namespace opkit;

inline constexpr auto kSim = static_cast<DeviceType>(95);

class SimContext : public CPUContext {
 public:
  static constexpr DeviceType kDeviceType = kSim;
  explicit SimContext(Device device) : device_(device) {}
  Device device() const { return device_; }

 private:
  Device device_;
};
static_assert(DeviceContext<SimContext>);

// Computes y = x + 1, on the CPU and on the simulated device.
template <class Context>
class AddOneOp final : public Operator<Context> {
 public:
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = this->Input(0);
    Tensor* y = this->Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      static_cast<float*>(y->raw_mutable_data())[i] =
          static_cast<const float*>(x.raw_data())[i] + 1;
    return true;
  }
};

inline bool is_there = true;
inline int copies = 0;

inline void CopyBytes(void* to, Device, const void* from, Device, int64_t nbytes, void*) {
  ++copies;
  std::memcpy(to, from, static_cast<size_t>(nbytes));
}

// Registers the device type and its copies for the life of a test.
struct SimDevice {
  SimDevice() {
    RegisterDeviceType(kSim, {"sim", kSim, false});
    SetDeviceAvailability(kSim, [](Device) -> std::string {
      return is_there ? "" : "the card is not in this machine";
    });
    RegisterCopy(DeviceType::kCPU, kSim, &CopyBytes);
    RegisterCopy(kSim, DeviceType::kCPU, &CopyBytes);
    is_there = true;
    copies = 0;
  }
  SimDevice(const SimDevice&) = delete;
  ~SimDevice() {
    RegisterCopy(DeviceType::kCPU, kSim, nullptr);
    RegisterCopy(kSim, DeviceType::kCPU, nullptr);
  }
  TestAllocator allocator{kSim};
};

}  // namespace sim_device

#endif  // OPKIT_TESTS_SUPPORT_SIM_DEVICE_HPP_
