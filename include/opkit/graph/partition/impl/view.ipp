// The definitions of PartitionView and its handles.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_

#include <numeric>

#include "opkit/graph/partition/view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

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
namespace detail {

inline std::vector<int> FirstNumbers(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace detail

OPKIT_INLINE PartitionList<PartitionNode> PartitionValue::consumers() const {
  return {view_, view_->structure().consumers(index_)};
}

OPKIT_INLINE const OperatorDef& PartitionNode::def() const { return view_->graph().node(index_); }
OPKIT_INLINE PartitionList<PartitionValue> PartitionNode::inputs() const {
  return {view_, view_->structure().inputs(index_)};
}
OPKIT_INLINE PartitionList<PartitionValue> PartitionNode::outputs() const {
  return {view_, view_->structure().outputs(index_)};
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
OPKIT_INLINE PartitionList<PartitionNode> PartitionNode::control_inputs() const {
  std::vector<int> nodes;
  for (const std::string& name : def().control_inputs())
    nodes.push_back(view_->FindNode(name).index());
  return {view_, nodes};
}
OPKIT_INLINE bool PartitionNode::is_registered() const {
  return OpRegistry::Global().FindSchema(op()) || detail::IsOperatorOfHost(op());
}
OPKIT_INLINE bool PartitionNode::is_taken() const {
  return !view_->taken_.empty() && view_->taken_[detail::Index(index_)] != 0;
}

OPKIT_INLINE PartitionNode PartitionView::node(int i) const {
  graph().node(i);  // throws kOutOfRange for an index that the graph does not have
  return {this, i};
}
OPKIT_INLINE PartitionValue PartitionView::value(int i) const {
  if (i < 0 || i >= num_values())
    Throw(ErrorCode::kOutOfRange, "there is no value ", i, ": the graph has ", num_values(),
          " values");
  return {this, i};
}
OPKIT_INLINE PartitionList<PartitionNode> PartitionView::nodes() const {
  return {this, detail::FirstNumbers(detail::Index(num_nodes()))};
}
OPKIT_INLINE PartitionList<PartitionNode> PartitionView::nodes_in_order() const {
  return {this, structure_->order()};
}
OPKIT_INLINE PartitionList<PartitionValue> PartitionView::inputs() const {
  return {this, detail::FirstNumbers(graph().inputs().size())};  // inputs are the first values
}
OPKIT_INLINE PartitionList<PartitionValue> PartitionView::outputs() const {
  return {this, structure_->outputs()};
}
OPKIT_INLINE PartitionNode PartitionView::FindNode(std::string_view name) const {
  if (named_.empty())
    for (int i = 0; i < num_nodes(); ++i) named_[graph().node(i).name()].push_back(i);
  const std::vector<int>* const found = name.empty() ? nullptr : named_.Find(name);
  if (!found) return {this, -1};
  if (found->size() > 1)
    Throw(ErrorCode::kInvalidArgument, "two nodes have the name '", name, "', one of them ",
          ToString(graph().node(found->front())), "; use their numbers");
  return {this, found->front()};
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_VIEW_IPP_
