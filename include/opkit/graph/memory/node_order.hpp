// OrderForFootprint: an order of a graph's nodes in which fewer bytes are live at once. Before
// memory is planned, for runs whose steps follow each other.
#ifndef OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_
#define OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit::inline OPKIT_ABI {

// The most bytes that are live at once where nodes run in this order, each value from the node that
// makes it to the last that reads it. `bytes(value)` is 0 for what lies elsewhere.
int64_t PeakBytes(const GraphView& view, const std::vector<int>& order,
                  FunctionRef<int64_t(int value)> bytes);

// An order whose PeakBytes are less than those of view.order(), or else that. List scheduling: of
// the nodes that are ready the one goes next that adds least to what is live, and of equal ones the
// first. O(edges + nodes * kLookedAt).
std::vector<int> OrderForFootprint(const GraphView& view, FunctionRef<int64_t(int value)> bytes);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/node_order.ipp"
#endif

#endif  // OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_
