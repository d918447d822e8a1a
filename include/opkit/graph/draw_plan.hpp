// DrawMemory: the memory plan of a graph as a picture: time across, addresses up, a box for each
// value.
#ifndef OPKIT_GRAPH_DRAW_PLAN_HPP_
#define OPKIT_GRAPH_DRAW_PLAN_HPP_

#include "opkit/graph/plan.hpp"
#include "opkit/graph/print/memory_svg.hpp"

namespace opkit::inline OPKIT_ABI {

// An SVG document for the input shapes used last. The steps across are those of the stored order;
// where nodes run in another, boxes that could meet then do not overlap either. Values that share
// bytes in place are one box with both names. Errors: as Plan::memory(); kNotFound for a device
// that the plan has no arena on.
template <class P = Plan>
std::string DrawMemory(const P& plan, Device device = {}) {
  const auto found = plan.state()->Latest();
  static_cast<void>(plan.memory());
  for (const auto& arena : found->arenas()) {
    if (!(arena.device == MemoryDevice(device))) continue;
    const auto& view = plan.state()->view();
    MemorySvgOptions options;
    options.title = StrCat("Memory of ", view.num_nodes(), " nodes on ", ToString(arena.device));
    options.names.resize(arena.lifetimes.buffers.size());
    for (size_t value = 0; value < arena.values.size(); ++value) {
      const int buffer = arena.lifetimes.buffer_of[value];
      if (buffer < 0) continue;
      std::string& name = options.names[static_cast<size_t>(buffer)];
      const int number = static_cast<int>(value) - view.num_values();
      name += StrCat(name.empty() ? "" : " = ", number < 0 ? view.name(static_cast<int>(value))
                                                           : StrCat("scratch of step ", number));
    }
    return DrawMemoryPlan(arena.lifetimes.buffers, arena.plan, options);
  }
  Throw(ErrorCode::kNotFound, "the plan has no memory on ", ToString(device));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_DRAW_PLAN_HPP_
