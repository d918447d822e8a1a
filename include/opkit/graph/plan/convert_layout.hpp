// ConvertLayout: the operator that plans insert where neighbours differ in layout. A node of a
// program's own gives its output the layout that its attribute names:
//
//   graph.AddNode(OperatorDef("ConvertLayout", {"X"}, {"Y"}).Arg("layout", "NHWC"));
#ifndef OPKIT_GRAPH_PLAN_CONVERT_LAYOUT_HPP_
#define OPKIT_GRAPH_PLAN_CONVERT_LAYOUT_HPP_

#include "opkit/op/kernel.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Its kernel on the host, which takes the configuration that it is created with.
OPKIT_IMAGE_LOCAL const Kernel& ConvertLayoutKernel();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/convert_layout.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_CONVERT_LAYOUT_HPP_
