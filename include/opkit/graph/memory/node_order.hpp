// OrderForFootprint: finds an order of a graph's nodes in which fewer bytes are live at once.
// Called before memory is planned, for runs whose steps follow each other.
#ifndef OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_
#define OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the most bytes that are live at once if nodes run in this order. A value is live from the
// node that makes it to its last reader. `bytes(value)` is 0 for a value that lies elsewhere.
int64_t PeakBytes(const GraphView& view, const std::vector<int>& order,
                  FunctionRef<int64_t(int value)> bytes);

// Returns an order with a smaller PeakBytes than view.order(), or view.order() if it finds none.
// List scheduling: the next node is the ready node that adds the fewest live bytes; of equal nodes,
// the first. Looks at the first kLookedAt ready nodes: O(edges + nodes * kLookedAt).
std::vector<int> OrderForFootprint(const GraphView& view, FunctionRef<int64_t(int value)> bytes);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/memory/impl/node_order.ipp"
#endif

#endif  // OPKIT_GRAPH_MEMORY_NODE_ORDER_HPP_
