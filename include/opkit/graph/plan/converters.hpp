// The operators that plans insert: ConvertLayout where neighbours differ in layout, CopyToDevice
// where they differ in device. A program may also add such nodes itself:
//
//   graph.AddNode(OperatorDef("ConvertLayout", {"X"}, {"Y"}).Arg("layout", "NHWC"));
//   graph.AddNode(CopyToDevice("X", "Y", {DeviceType::kCUDA, 0}));
//
// In header-only use, one file of the program must include this header, or a plan that inserts such
// operators throws.
#ifndef OPKIT_GRAPH_PLAN_CONVERTERS_HPP_
#define OPKIT_GRAPH_PLAN_CONVERTERS_HPP_

#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns a node that copies a value to the memory of a device.
OperatorDef CopyToDevice(const std::string& from, const std::string& to, Device device);

namespace detail {

// Return the kernels of the two operators, which run on the host. ConvertLayout's kernel takes the
// configuration that the operator is created with.
OPKIT_IMAGE_LOCAL const Kernel& ConvertLayoutKernel();
OPKIT_IMAGE_LOCAL const Kernel& CopyToDeviceKernel();

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/converted_graph.ipp"
#include "opkit/graph/plan/impl/converters.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_CONVERTERS_HPP_
