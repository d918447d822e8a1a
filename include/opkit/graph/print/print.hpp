// ToString: prints a graph as text, with one line for each input, constant, node and output; or
// the difference between the texts of two graphs, which shows the effect of a pass.
#ifndef OPKIT_GRAPH_PRINT_PRINT_HPP_
#define OPKIT_GRAPH_PRINT_PRINT_HPP_

#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns lines such as "input X float32[N, 3]", "constant W float32[3, 4]", "MatMul (X, W) ->
// (Y)", "output Y". A node's line has its attributes, and its device, backends and control inputs
// if they are set. A graph with errors can be printed too.
std::string ToString(const Graph& graph);

// Returns the lines of both graphs: "- " before lines that only `before` has, "+ " before lines
// that only `after` has, two spaces before common lines. The time is proportional to the product of
// the numbers of lines that differ.
std::string ToString(const Graph& before, const Graph& after);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/print/impl/print.ipp"
#endif

#endif  // OPKIT_GRAPH_PRINT_PRINT_HPP_
