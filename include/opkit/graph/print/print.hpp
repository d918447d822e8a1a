// PrintGraph: a graph as text, one line for each input, constant, node and output, and two graphs
// as the difference between these lines, which shows the effect of a pass.
#ifndef OPKIT_GRAPH_PRINT_PRINT_HPP_
#define OPKIT_GRAPH_PRINT_PRINT_HPP_

#include "opkit/graph/carried_graph.hpp"

namespace opkit::inline OPKIT_ABI {

// "input X float32[N, 3]", "constant W float32[3, 4]", "MatMul (X, W) -> (Y)", "output Y": names;
// attributes, device, engine and control inputs where they differ from the defaults. A graph with
// errors can be printed too.
std::string PrintGraph(const Graph& graph);

// Both listings as one: "- " before lines that only `before` has, "+ " before those that only
// `after` has, two spaces before the rest. Time is the product of the numbers of lines that differ.
std::string PrintGraph(const Graph& before, const Graph& after);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/print/impl/print.ipp"
#endif

#endif  // OPKIT_GRAPH_PRINT_PRINT_HPP_
