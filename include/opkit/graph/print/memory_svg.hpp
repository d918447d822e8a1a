// ToSvg: draws a memory plan: time from left to right, addresses from bottom to top, a
// rectangle for each buffer, coloured by its lifetime, and a line at the lower bound.
#ifndef OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_
#define OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_

#include <string>

#include "opkit/graph/memory/arena.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct MemorySvgOptions {
  std::string title = "Memory plan";
  std::string time_label = "step";
  std::vector<std::string> names;  // the buffers' names; empty: their indices
  int width = 1200;                // in pixels
  int height = 700;
};

// Returns an SVG document of the plan: axes with units, a label on every buffer with enough room,
// and arena bytes, lower bound and ratio below the title. A tooltip shows name, size and lifetime
// of the buffer under the mouse. Throws kInvalidArgument if there are not as many offsets or names
// as buffers.
std::string ToSvg(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan,
                  const MemorySvgOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/print/impl/memory_svg.ipp"
#endif

#endif  // OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_
