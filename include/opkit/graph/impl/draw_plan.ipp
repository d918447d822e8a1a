// Draws a plan: finds the names of each buffer's values, and the backend of each node.
#ifndef OPKIT_GRAPH_IMPL_DRAW_PLAN_IPP_
#define OPKIT_GRAPH_IMPL_DRAW_PLAN_IPP_

#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/print/memory_svg.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::string ToSvg(const Plan& plan, Device device) {
  static_cast<void>(plan.memory());  // throws while no shapes are known
  const auto found = plan.state()->Latest();
  const GraphView& view = found->view();
  for (const detail::ArenaPlan& arena : found->memory().arenas()) {
    if (arena.device != MemoryDevice(device)) continue;
    MemorySvgOptions options;
    options.title = StrCat("Memory of ", view.num_nodes(), " nodes on ", ToString(arena.device));
    options.names.resize(arena.lifetimes.buffers.size());
    for (size_t value = 0; value < arena.values.size(); ++value) {
      const int buffer = arena.lifetimes.buffer_of[value];
      if (buffer < 0) continue;
      std::string& name = options.names[detail::Index(buffer)];
      name += StrCat(name.empty() ? "" : " = ", found->memory().Name(value),
                     arena.bounded[value] ? " (at most)" : "");
    }
    return ToSvg(arena.lifetimes.buffers, arena.plan, options);
  }
  Throw(ErrorCode::kNotFound, "the plan has no memory on ", ToString(device));
}

OPKIT_INLINE std::string ToDot(const Plan& plan, const DotOptions& options) {
  static_cast<void>(plan.memory());  // throws while no shapes are known
  const auto found = plan.state()->Latest();
  std::vector<std::string> backends;
  for (int node = 0; node < found->view().num_nodes(); ++node)
    backends.push_back(found->PartsOf(node).empty() ? std::string() : found->choice(node).name());
  return detail::DrawDot(found->view().graph(), &found->types(), options, &backends);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_DRAW_PLAN_IPP_
