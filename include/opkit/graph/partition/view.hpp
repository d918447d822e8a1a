// PartitionView: the view of a graph that partitioners read: nodes and values as small handles with
// their attributes and inferred types. Partitioners of programs and of libraries use the same
// class.
#ifndef OPKIT_GRAPH_PARTITION_VIEW_HPP_
#define OPKIT_GRAPH_PARTITION_VIEW_HPP_

#include <iterator>

#include "opkit/graph/graph_inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class PartitionView;
class PartitionNode;

// A list of nodes or values, by number. It makes an element on each access and returns it by value:
// `const PartitionNode& node = value.consumers()[0];` extends the element's lifetime.
template <class T>
class PartitionList {
 public:
  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::forward_iterator_tag;

    iterator() = default;
    iterator(const PartitionView* view, const int* at) : view_(view), at_(at) {}
    T operator*() const { return T(view_, *at_); }
    iterator& operator++() { return ++at_, *this; }
    iterator operator++(int) { return {view_, at_++}; }
    friend bool operator==(const iterator& a, const iterator& b) { return a.at_ == b.at_; }

   private:
    const PartitionView* view_ = nullptr;
    const int* at_ = nullptr;
  };

  PartitionList(const PartitionView* view, std::span<const int> numbers)
      : view_(view), numbers_(numbers.begin(), numbers.end()) {}

  size_t size() const { return numbers_.size(); }
  bool empty() const { return numbers_.empty(); }
  T operator[](size_t i) const { return T(view_, numbers_[i]); }
  T front() const { return (*this)[0]; }
  T back() const { return (*this)[numbers_.size() - 1]; }
  iterator begin() const { return {view_, numbers_.data()}; }
  iterator end() const { return {view_, numbers_.data() + numbers_.size()}; }
  operator std::vector<T>() const { return std::vector<T>(begin(), end()); }  // NOLINT: implicit
  friend bool operator==(const PartitionList& list, const std::vector<T>& other) {
    return std::vector<T>(list) == other;
  }

 private:
  const PartitionView* view_;
  std::vector<int> numbers_;
};

// A value, or an optional input or output that a node leaves out. In that case exists() is false,
// and no other member may be called. A cheap handle that is valid as long as its view.
class PartitionValue {
 public:
  PartitionValue(const PartitionView* view, int index) : view_(view), index_(index) {}

  bool exists() const { return index_ >= 0; }
  int index() const { return index_; }
  const std::string& name() const;
  // The inferred type. An extent is a number, a symbol ("N") or unknown; an unknown dtype is
  // kUndefined.
  const TensorInfo& info() const;
  DType dtype() const { return info().dtype; }
  const SymbolicShape& shape() const { return info().shape; }
  // The elements if they are known before the graph runs; else null.
  const Tensor* constant() const { return info().constant; }
  // Returns the number of bytes of the value; 0 if its dtype or an extent is unknown.
  uint64_t bytes() const;
  bool is_input() const;   // true for an input of the graph
  bool is_output() const;  // true for an output of the graph
  // Returns the node that makes the value; exists() is false for inputs and constants of the graph.
  PartitionNode producer() const;
  // Returns the nodes that read the value, each once, in ascending order.
  PartitionList<PartitionNode> consumers() const;
  friend bool operator==(const PartitionValue&, const PartitionValue&) = default;

 private:
  const PartitionView* view_;
  int index_;
};

// A node. A cheap handle that is valid as long as its view.
class PartitionNode {
 public:
  // A handle of the node with this number; -1 for none.
  PartitionNode(const PartitionView* view, int index) : view_(view), index_(index) {}

  // exists() is false for the handle of a missing node; then no other member may be called.
  bool exists() const { return index_ >= 0; }
  int index() const { return index_; }
  // Return the node as the graph has it, and its parts.
  const OperatorDef& def() const;
  const std::string& op() const { return def().type(); }
  const std::string& name() const { return def().name(); }
  const Arguments& attributes() const { return def().args(); }
  Device device() const { return def().device(); }
  // exists() is false for an input or output that the node leaves out.
  PartitionList<PartitionValue> inputs() const;
  PartitionList<PartitionValue> outputs() const;
  PartitionValue input(int i) const;  // throws kOutOfRange if the node has no such input
  PartitionValue output(int i) const;
  // Returns the nodes that the node names as control inputs: they must run before it.
  PartitionList<PartitionNode> control_inputs() const;
  // True if the operator is registered. Otherwise the types of its outputs are unknown.
  bool is_registered() const;
  // True if an earlier partitioner made this node. With the option see_taken it may be taken again.
  bool is_taken() const;
  friend bool operator==(const PartitionNode&, const PartitionNode&) = default;

 private:
  const PartitionView* view_;
  int index_;
};

// A graph with its inferred types. Nodes and values have the numbers of GraphView. The graph must
// not change while the view is in use. Not synchronised: FindNode builds an index.
//
//   for (PartitionNode node : view.nodes())
//     if (node.op() == "Exp" && node.input(0).dtype() == DType::kFloat32) answer.Take(node);
class PartitionView {
 public:
  // `taken` has is_taken() of each node; empty if it is false for all.
  PartitionView(const GraphView& structure, const GraphTypes& types, std::vector<char> taken = {})
      : structure_(&structure), types_(&types), taken_(std::move(taken)) {}

  // Return the graph, its GraphView and its inferred types, and the numbers of nodes and values.
  const Graph& graph() const { return structure_->graph(); }
  const GraphView& structure() const { return *structure_; }
  const GraphTypes& types() const { return *types_; }
  int num_nodes() const { return structure_->num_nodes(); }
  int num_values() const { return structure_->num_values(); }
  // Throws kOutOfRange for a number that the graph does not have. So does value.
  PartitionNode node(int i) const;
  PartitionValue value(int i) const;
  // Returns all nodes in ascending order.
  PartitionList<PartitionNode> nodes() const;
  // Returns all nodes in topological order.
  PartitionList<PartitionNode> nodes_in_order() const;
  PartitionList<PartitionValue> inputs() const;
  PartitionList<PartitionValue> outputs() const;
  // Returns the node of that name; exists() is false if there is none. Throws kInvalidArgument if
  // two nodes have the name.
  PartitionNode FindNode(std::string_view name) const;
  // Returns the value of that name; exists() is false if there is none.
  PartitionValue FindValue(std::string_view name) const {
    return {this, structure_->FindValue(name)};
  }

 private:
  friend class PartitionNode;

  const GraphView* structure_;
  const GraphTypes* types_;
  std::vector<char> taken_;
  mutable detail::NameTable<std::vector<int>> named_;  // nodes by name; FindNode fills it
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/view.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_VIEW_HPP_
