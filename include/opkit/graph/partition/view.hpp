// PartitionView: the graph as partitioners read it: nodes and values with everything that is known
// of them, as small handles. The same class serves the partitioners of a program and of a library.
#ifndef OPKIT_GRAPH_PARTITION_VIEW_HPP_
#define OPKIT_GRAPH_PARTITION_VIEW_HPP_

#include <iterator>

#include "opkit/graph/graph_inference.hpp"

namespace opkit::inline OPKIT_ABI {

class PartitionView;
class PartitionNode;

// The nodes or values that an accessor answers with. Elements are made when they are asked for:
// `const PartitionNode& node = value.consumers()[0];` keeps one.
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

  PartitionList(const PartitionView* view, std::vector<int> numbers)
      : view_(view), numbers_(std::move(numbers)) {}

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

// A value, or the place of an optional input or output that a node leaves out: exists() is false
// then and nothing else may be asked. Valid as long as its view, copied freely.
class PartitionValue {
 public:
  PartitionValue(const PartitionView* view, int index) : view_(view), index_(index) {}

  bool exists() const { return index_ >= 0; }
  int index() const { return index_; }
  const std::string& name() const;
  // The inferred type: an extent is a number, a symbol ("N") or unknown; kUndefined where nothing
  // says the dtype.
  const TensorInfo& info() const;
  DType dtype() const { return info().dtype; }
  const SymbolicShape& shape() const { return info().shape; }
  // The elements, where they are known before the graph runs; null otherwise.
  const Tensor* constant() const { return info().constant; }
  // Bytes of the value; 0 while its dtype or an extent is open.
  uint64_t bytes() const;
  bool is_input() const;   // of the graph
  bool is_output() const;  // of the graph
  // The node that makes it; exists() is false for inputs and constants of the graph.
  PartitionNode producer() const;
  // The nodes that read it, each once, by index.
  PartitionList<PartitionNode> consumers() const;
  friend bool operator==(const PartitionValue&, const PartitionValue&) = default;

 private:
  const PartitionView* view_;
  int index_;
};

class PartitionNode {
 public:
  PartitionNode(const PartitionView* view, int index) : view_(view), index_(index) {}

  bool exists() const { return index_ >= 0; }
  int index() const { return index_; }
  const OperatorDef& def() const;
  const std::string& op() const { return def().type(); }
  const std::string& name() const { return def().name(); }
  const Arguments& attributes() const { return def().args(); }
  Device device() const { return def().device(); }
  // Where the node leaves one out, exists() of its place is false.
  PartitionList<PartitionValue> inputs() const;
  PartitionList<PartitionValue> outputs() const;
  PartitionValue input(int i) const;  // Error (kOutOfRange) for a place that it does not have
  PartitionValue output(int i) const;
  // Nodes that must run before it though it reads none of their outputs, by name.
  PartitionList<PartitionNode> control_inputs() const;
  // Somebody registered the operator. Without that nothing is known of the types of its outputs.
  bool is_registered() const;
  // A partitioner before this one put it there in place of what it took; it may not be taken again.
  bool is_taken() const;
  friend bool operator==(const PartitionNode&, const PartitionNode&) = default;

 private:
  const PartitionView* view_;
  int index_;
};

// Nodes and values have the numbers of GraphView. Made for one graph, which does not change while
// the view is in use. Not synchronised; reading is const.
//
//   for (PartitionNode node : view.nodes())
//     if (node.op() == "Exp" && node.input(0).dtype() == DType::kFloat32) answer.Take(node);
class PartitionView {
 public:
  // `taken`: by node; empty: none is.
  PartitionView(const GraphView& structure, const GraphTypes& types, std::vector<char> taken = {})
      : structure_(&structure), types_(&types), taken_(std::move(taken)) {}

  const Graph& graph() const { return structure_->graph(); }
  const GraphView& structure() const { return *structure_; }
  const GraphTypes& types() const { return *types_; }
  int num_nodes() const { return structure_->num_nodes(); }
  int num_values() const { return structure_->num_values(); }
  // Error (kOutOfRange) for a number that there is not.
  PartitionNode node(int i) const;
  PartitionValue value(int i) const;
  // All nodes, by index.
  PartitionList<PartitionNode> nodes() const;
  // The same, each after those it waits for.
  PartitionList<PartitionNode> nodes_in_order() const;
  PartitionList<PartitionValue> inputs() const;
  PartitionList<PartitionValue> outputs() const;
  // exists() is false where no node has the name; Error (kInvalidArgument) where two have it.
  PartitionNode FindNode(std::string_view name) const;
  // exists() is false where the graph has no value of that name.
  PartitionValue FindValue(std::string_view name) const {
    return {this, structure_->FindValue(name)};
  }

 private:
  friend class PartitionNode;

  const GraphView* structure_;
  const GraphTypes* types_;
  std::vector<char> taken_;
  // Node names, and the first node of each, -1 - node where another has it too; for FindNode.
  mutable NameIndex names_;
  mutable std::vector<int> named_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/view.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_VIEW_HPP_
