// The definitions of PartitionAnswer, SubgraphReview and PartitionerRegistry.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_PARTITIONER_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_PARTITIONER_IPP_

#include "opkit/base/suggest.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void CheckAnsweredNode(const PartitionView& view, int node) {
  if (node < 0 || node >= view.num_nodes())
    Throw(ErrorCode::kOutOfRange, "the answer names node ", node, ", but the graph has ",
          view.num_nodes(), " nodes");
}

}  // namespace detail

OPKIT_INLINE void PartitionAnswer::Take(int node, int kind, int set) {
  detail::CheckAnsweredNode(*view_, node);
  if (kind < kAnySubgraph)
    Throw(ErrorCode::kOutOfRange, "the answer takes node ", ToString(view_->graph().node(node)),
          " for the kind ", kind,
          "; it is -1 for any subgraph, or a number from 0 on for a kind of its own");
  if (set < 0)
    Throw(ErrorCode::kOutOfRange, "the answer puts node ", ToString(view_->graph().node(node)),
          " into the set ", set, "; it is a number from 0 on");
  kinds_[node] = kind;
  sets_[node] = set;
  reasons_[node].clear();
}
OPKIT_INLINE void PartitionAnswer::Take(std::string_view name, int kind, int set) {
  const PartitionNode node = view_->FindNode(name);
  if (!node.exists()) {
    std::vector<std::string> names;
    for (const OperatorDef& def : view_->graph().nodes())
      if (!def.name().empty()) names.push_back(def.name());
    Throw(ErrorCode::kNotFound, "the answer names node '", name, "', which the graph does not have",
          SuggestName(name, names));
  }
  Take(node.index(), kind, set);
}
OPKIT_INLINE void PartitionAnswer::Refuse(int node, std::string why) {
  detail::CheckAnsweredNode(*view_, node);
  kinds_[node] = kNotTaken;
  reasons_[node] = std::move(why);
}

OPKIT_INLINE bool SubgraphReview::IsArg(int i) const {
  if (i < 0 || detail::Index(i) >= body_->inputs().size())
    Throw(ErrorCode::kOutOfRange, "there is no input ", i, ": the subgraph has ",
          body_->inputs().size(), " inputs");
  return view_->graph().IsInput(body_->inputs()[detail::Index(i)].name);
}
OPKIT_INLINE std::vector<bool> SubgraphReview::IsArg() const {
  std::vector<bool> all;
  for (size_t i = 0; i < body_->inputs().size(); ++i) all.push_back(IsArg(static_cast<int>(i)));
  return all;
}
namespace detail {

// Parses a text as an attribute of a type; returns the text itself if it does not fit.
inline Attribute ReadAs(AttributeType type, const Attribute& text) {
  const std::string& from = text.values().strings[0];
  const auto made = [&]<class T>(const std::optional<T>& read) {
    return read ? Attribute(*read) : text;
  };
  switch (type) {
    case AttributeType::kInt:
      return made(ParseText<int64_t>(from));
    case AttributeType::kFloat:
      return made(ParseText<double>(from));
    case AttributeType::kBool:
      return made(ParseText<bool>(from));
    case AttributeType::kInts:
      return made(ParseList<int64_t>(from));
    case AttributeType::kFloats:
      return made(ParseList<double>(from));
    case AttributeType::kBools:
      return made(ParseList<bool>(from));
    case AttributeType::kStrings:
      return made(ParseList<std::string>(from));
    default:
      return text;
  }
}

}  // namespace detail

OPKIT_INLINE void SubgraphReview::SetAttribute(const std::string& name, Attribute value) {
  if (value.type() == AttributeType::kString)
    if (const OpSchema* schema = OpRegistry::Global().FindSchema(def_->type()))
      if (const detail::AttributeSchema* declared = schema->FindAttribute(name);
          declared && declared->type)
        value = detail::ReadAs(*declared->type, value);
  def_->mutable_args().Set(name, std::move(value));
}
OPKIT_INLINE void SubgraphReview::AddConstant(const std::string& name, const Tensor& value) {
  body_->AddConstant(name, value);
}

OPKIT_INLINE PartitionerRegistry& PartitionerRegistry::Global() {
  static PartitionerRegistry registry;
  return registry;
}

OPKIT_INLINE std::vector<std::string> PartitionerRegistry::Requested(
    const std::string& name) const {
  if (parts_.Has(name)) return {name};
  std::vector<std::string> strategies = parts_.Group(name);
  if (strategies.empty()) static_cast<void>(Get(name));  // throws, with the nearest name
  return strategies;
}

OPKIT_INLINE detail::IntrusivePtr<const Partitioner> PartitionerRegistry::Get(
    std::string_view name) const {
  detail::IntrusivePtr<const Partitioner> found = parts_.Get(name);
  if (const std::string problem = found->problem(); !problem.empty())
    Throw(ErrorCode::kInvalidArgument, problem);
  return found;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_PARTITIONER_IPP_
