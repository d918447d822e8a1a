// MarkBySelector's definition.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_SELECTOR_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_SELECTOR_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/partition/selector.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE void MarkBySelector(SubgraphSelector& selector, PartitionAnswer& answer) {
  using detail::Index;
  const PartitionView& view = answer.view();
  enum : char { kFree, kGrowing, kTaken };
  detail::IndexedVector<char> state(Index(view.num_nodes()), kFree);
  int set = 0;
  for (const PartitionNode& seed : view.nodes_in_order()) {
    if (state[seed.index()] != kFree || seed.is_taken()) continue;
    selector.Reset();
    if (!selector.Select(seed)) continue;
    std::vector<PartitionNode> found;
    const auto take = [&](const PartitionNode& node) {
      state[node.index()] = kGrowing;
      found.push_back(node);
    };
    const auto is_free = [&](const PartitionNode& node) {
      return node.exists() && state[node.index()] == kFree && !node.is_taken();
    };
    take(seed);
    for (size_t next = 0; next < found.size(); ++next) {
      const PartitionNode node = found[next];
      for (const PartitionValue& value : node.inputs()) {
        if (!value.exists()) continue;
        const PartitionNode input = value.producer();
        if (is_free(input) && selector.SelectInput(node, input)) take(input);
      }
      for (const PartitionValue& value : node.outputs()) {
        if (!value.exists()) continue;
        for (const PartitionNode& output : value.consumers())
          if (is_free(output) && selector.SelectOutput(node, output)) take(output);
      }
    }
    const int kind = selector.Kind();
    if (kind < kAnySubgraph)
      Throw(ErrorCode::kOutOfRange, "the selector gives a subgraph the kind ", kind,
            "; a kind is -1 for any, or a number of 0 or more");
    for (const PartitionNode& node : selector.Filter(found)) {
      if (node.index() < 0 || node.index() >= view.num_nodes() || state[node.index()] != kGrowing)
        Throw(ErrorCode::kInvalidArgument, "Filter returned node ", node.index(),
              ", which is not among its candidates or was returned twice");
      state[node.index()] = kTaken;
      answer.Take(node, kind, set);
    }
    ++set;
    for (const PartitionNode& node : found)
      if (state[node.index()] == kGrowing) {
        state[node.index()] = kFree;
        answer.Refuse(node, "dropped by Filter");
      }
  }
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_SELECTOR_IPP_
