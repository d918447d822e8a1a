// The definitions of ExtractSubgraph and ReplaceNodes.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_EXTRACT_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_EXTRACT_IPP_

#include <algorithm>

#include "opkit/graph/partition/extract.hpp"
#include "opkit/graph/partition/node_sets.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
OPKIT_INLINE ExtractedSubgraph ExtractSubgraph(const GraphView& view, const std::vector<int>& nodes,
                                               const GraphTypes* types) {
  detail::CheckNodeSet(view, nodes);
  std::vector<int> sorted(nodes);
  std::sort(sorted.begin(), sorted.end());
  detail::IndexedVector<char> inside(detail::Index(view.num_nodes()), 0);
  for (const int node : sorted)
    if (std::exchange(inside[node], 1))
      Throw(ErrorCode::kInvalidArgument, "node ", ToString(view.graph().node(node)),
            " is named twice");
  const std::vector<int> path = PathThroughOutside(CutProblemOf(view), inside);
  if (!path.empty())
    Throw(ErrorCode::kInvalidArgument,
          "the nodes cannot be one subgraph, since a path leaves them and comes back: ",
          detail::PathText(view.graph(), path));
  return detail::SubgraphExtractor(view, types).Extract(sorted);
}

OPKIT_INLINE Graph ReplaceNodes(const GraphView& view,
                                const std::vector<NodeReplacement>& replacements) {
  if (replacements.empty()) return view.graph();
  return detail::NodeReplacer(view, replacements).Result();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_EXTRACT_IPP_
