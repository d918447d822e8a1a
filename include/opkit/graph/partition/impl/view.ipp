// PartitionView's definitions, and those of its handles.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_

#include "opkit/graph/partition/view.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE const std::string& PartitionValue::name() const {
  return view_->structure().name(index_);
}
OPKIT_INLINE const TensorInfo& PartitionValue::info() const { return view_->types()[index_]; }
OPKIT_INLINE uint64_t PartitionValue::bytes() const {
  const TensorInfo& type = info();
  return type.dtype == DType::kUndefined || !type.shape.is_known() ? 0 : OpSchema::Bytes(type);
}
OPKIT_INLINE bool PartitionValue::is_input() const { return view_->structure().IsInput(index_); }
OPKIT_INLINE bool PartitionValue::is_output() const { return view_->structure().IsOutput(index_); }
OPKIT_INLINE PartitionNode PartitionValue::producer() const {
  return {view_, view_->structure().producer(index_)};
}
OPKIT_INLINE std::vector<PartitionNode> PartitionValue::consumers() const {
  std::vector<PartitionNode> nodes;
  for (const int node : view_->structure().consumers(index_)) nodes.emplace_back(view_, node);
  return nodes;
}

OPKIT_INLINE const OperatorDef& PartitionNode::def() const { return view_->graph().node(index_); }
OPKIT_INLINE std::vector<PartitionValue> PartitionNode::inputs() const {
  std::vector<PartitionValue> values;
  for (const int value : view_->structure().inputs(index_)) values.emplace_back(view_, value);
  return values;
}
OPKIT_INLINE std::vector<PartitionValue> PartitionNode::outputs() const {
  std::vector<PartitionValue> values;
  for (const int value : view_->structure().outputs(index_)) values.emplace_back(view_, value);
  return values;
}
namespace detail {

inline int ValueAt(std::span<const int> values, int i, const char* what, const OperatorDef& def) {
  if (i < 0 || Index(i) >= values.size())
    Throw(ErrorCode::kOutOfRange, what, " ", i, " of ", ToString(def), ", which has ",
          values.size());
  return values[Index(i)];
}

}  // namespace detail

OPKIT_INLINE PartitionValue PartitionNode::input(int i) const {
  return {view_, detail::ValueAt(view_->structure().inputs(index_), i, "input", def())};
}
OPKIT_INLINE PartitionValue PartitionNode::output(int i) const {
  return {view_, detail::ValueAt(view_->structure().outputs(index_), i, "output", def())};
}
OPKIT_INLINE std::vector<PartitionNode> PartitionNode::control_inputs() const {
  std::vector<PartitionNode> nodes;
  for (const std::string& name : def().control_inputs()) nodes.push_back(view_->FindNode(name));
  return nodes;
}
OPKIT_INLINE bool PartitionNode::is_registered() const {
  return OpRegistry::Global().FindSchema(op()) || detail::IsOperatorOfHost(op());
}
OPKIT_INLINE bool PartitionNode::is_taken() const {
  return !view_->taken_.empty() && view_->taken_[detail::Index(index_)] != 0;
}

OPKIT_INLINE PartitionNode PartitionView::node(int i) const {
  graph().node(i);  // throws for a node that there is not
  return {this, i};
}
OPKIT_INLINE PartitionValue PartitionView::value(int i) const {
  if (i < 0 || i >= num_values())
    Throw(ErrorCode::kOutOfRange, "value ", i, " of a graph that has ", num_values());
  return {this, i};
}
OPKIT_INLINE std::vector<PartitionNode> PartitionView::nodes() const {
  std::vector<PartitionNode> nodes;
  for (int i = 0; i < num_nodes(); ++i) nodes.emplace_back(this, i);
  return nodes;
}
OPKIT_INLINE std::vector<PartitionNode> PartitionView::nodes_in_order() const {
  std::vector<PartitionNode> nodes;
  for (const int i : structure_->order()) nodes.emplace_back(this, i);
  return nodes;
}
OPKIT_INLINE std::vector<PartitionValue> PartitionView::inputs() const {
  std::vector<PartitionValue> values;
  for (size_t i = 0; i < graph().inputs().size(); ++i)
    values.emplace_back(this, static_cast<int>(i));  // inputs are the first values
  return values;
}
OPKIT_INLINE std::vector<PartitionValue> PartitionView::outputs() const {
  std::vector<PartitionValue> values;
  for (const int value : structure_->outputs()) values.emplace_back(this, value);
  return values;
}
OPKIT_INLINE PartitionNode PartitionView::FindNode(std::string_view name) const {
  if (named_.empty())
    for (int i = 0; i < num_nodes(); ++i) {
      const size_t number = detail::Index(names_.Add(graph().node(i).name()));
      if (number == named_.size())
        named_.push_back(i);
      else if (named_[number] >= 0)
        named_[number] = -1 - named_[number];
    }
  const int number = name.empty() ? -1 : names_.Find(name);
  if (number < 0) return {this, -1};
  const int found = named_[detail::Index(number)];
  if (found < 0)
    Throw(ErrorCode::kInvalidArgument, "two nodes have the name '", name, "', one of them ",
          ToString(graph().node(-1 - found)), "; use their numbers");
  return {this, found};
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_
