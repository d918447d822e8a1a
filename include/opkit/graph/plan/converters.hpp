// The operators that plans insert: ConvertLayout where neighbours differ in layout, CopyToDevice
// where they differ in device. Nodes of a program's own say what they make:
//
//   graph.AddNode(OperatorDef("ConvertLayout", {"X"}, {"Y"}).Arg("layout", "NHWC"));
//   graph.AddNode(CopyToDevice("X", "Y", {DeviceType::kCUDA, 0}));
//
// Header-only, one file of a program whose plans insert them includes this, or such a plan is an
// Error.
#ifndef OPKIT_GRAPH_PLAN_CONVERTERS_HPP_
#define OPKIT_GRAPH_PLAN_CONVERTERS_HPP_

#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

// A node that copies a value to the memory of a device.
OperatorDef CopyToDevice(const std::string& from, const std::string& to, Device device);

namespace detail {

// Their kernels, which run on the host. That of ConvertLayout takes the configuration that it is
// created with.
OPKIT_IMAGE_LOCAL const Kernel& ConvertLayoutKernel();
OPKIT_IMAGE_LOCAL const Kernel& CopyToDeviceKernel();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/converted_graph.ipp"
#include "opkit/graph/plan/impl/converters.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_CONVERTERS_HPP_
