// A memory plan as a picture: time from left to right, addresses from bottom to top, a rectangle
// for each buffer, coloured by how long it lives, and a line at the lower bound.
#ifndef OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_
#define OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_

#include <string>

#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {

struct MemorySvgOptions {
  std::string title = "Memory plan";
  std::string time_label = "step";
  std::vector<std::string> names;  // the buffers' names; empty: their indices
  int width = 1200;                // in pixels
  int height = 700;
};

// An SVG document of the plan: axes with units, a label on every buffer that has room for one, the
// name, size and life of the buffer under the mouse, and bytes, bound and ratio in the title. Error
// (kInvalidArgument) for another number of offsets or names than of buffers.
std::string DrawMemoryPlan(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan,
                           const MemorySvgOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/print/impl/memory_svg.ipp"
#endif

#endif  // OPKIT_GRAPH_PRINT_MEMORY_SVG_HPP_
