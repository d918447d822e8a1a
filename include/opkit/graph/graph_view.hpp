// GraphView: a snapshot of a graph as numbers: the producer and the consumers of each value, the
// edges between nodes, and a topological order. Inference, passes and plans use it.
#ifndef OPKIT_GRAPH_GRAPH_VIEW_HPP_
#define OPKIT_GRAPH_GRAPH_VIEW_HPP_

#include <span>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph.hpp"
#include "opkit/graph/memory/flat_lists.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Calls visit(name) for every value that the node rewrites: an input that is also an output of the
// same name, or an input that the operator's schema lists as mutated. May visit a name twice.
void ForEachRewritten(const OperatorDef& def, FunctionRef<void(const std::string&)> visit);

}  // namespace detail

// Values and nodes are numbers; a node's number is its index in the graph. The graph must outlive
// the view and must not change while the view exists.
class GraphView {
 public:
  // Node `to` waits for node `from`.
  struct Edge {
    int from;
    int to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  // A node that writes to an input of the graph or to an output of another node.
  struct Rewrite {
    int value;
    int node;
  };

  // Checks the structure. Throws kNotFound for a value without a producer that is read, rewritten
  // or an output of the graph, and for a control input that names no node. Throws kInvalidArgument
  // for a cycle, shown as a path; for a control input that names two nodes; and for a node that
  // rewrites a constant, or a value whose producer was added later.
  explicit GraphView(const Graph& graph);

  const Graph& graph() const { return *graph_; }
  int num_nodes() const { return graph_->num_nodes(); }
  // Values are numbered: inputs of the graph first, then constants, then values that nodes make.
  int num_values() const { return names_.size(); }
  const std::string& name(int value) const { return names_[value]; }
  const std::vector<std::string>& names() const { return names_.names(); }
  // Returns -1 if the graph has no value of that name.
  int FindValue(std::string_view name) const { return names_.Find(name); }
  bool IsInput(int value) const { return value < num_inputs(); }
  bool IsConstant(int value) const {
    return value >= num_inputs() && value < num_inputs() + num_constants();
  }
  const Tensor* constant(int value) const {
    if (!IsConstant(value)) return nullptr;
    return &graph_->constants()[detail::Index(value - num_inputs())].value;
  }
  bool IsOutput(int value) const { return is_output_[value] != 0; }
  const std::vector<int>& outputs() const { return outputs_; }

  // The values of a node; -1 for an input or output that it leaves out.
  std::span<const int> inputs(int node) const {
    return {values_.data() + offsets_[node], graph_->node(node).inputs().size()};
  }
  std::span<const int> outputs(int node) const {
    const OperatorDef& def = graph_->node(node);
    return {values_.data() + offsets_[node] + def.inputs().size(), def.outputs().size()};
  }
  // Returns the node that makes a value; -1 for inputs and constants.
  int producer(int value) const { return producers_[value]; }
  // Returns the nodes that read the value, each once, in ascending order.
  std::span<const int> consumers(int value) const { return consumers_.of(value); }
  // True if a node rewrites the value: its data differs before and after that node.
  bool IsRewritten(int value) const { return is_rewritten_[value] != 0; }
  // The rewrites in the order of the nodes; may contain an entry twice.
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }

  // The edges between nodes, each once, sorted by `to`, then `from`. A node waits for the producers
  // of its inputs, for the earlier nodes that read or write a value that it rewrites, and for its
  // control inputs. A reader of a rewritten value waits for the rewrite before it.
  const std::vector<Edge>& edges() const { return edges_; }
  // The edges that lead to a node begin at edges()[FirstEdgeTo(node)].
  size_t FirstEdgeTo(int node) const;
  // A topological order of the nodes. Of several nodes that are ready, the node that was added
  // first comes first.
  const std::vector<int>& order() const { return order_; }

 private:
  int num_inputs() const { return static_cast<int>(graph_->inputs().size()); }
  int num_constants() const { return static_cast<int>(graph_->constants().size()); }
  void AddNode(int node);
  void IndexConsumers();

  const Graph* graph_;
  detail::NameIndex names_;
  detail::IndexedVector<int> producers_;  // for each value, the node that makes it
  // Node by node, inputs then outputs; where each node begins.
  detail::IndexedVector<int> values_, offsets_;
  detail::FlatLists consumers_;  // for each value, the nodes that read it
  std::vector<int> outputs_;
  detail::IndexedVector<char> is_output_, is_rewritten_;  // for each value
  std::vector<Rewrite> rewrites_;
  std::vector<Edge> edges_;
  std::vector<int> order_;
};

namespace detail {

// Returns "node a  ->  node b". `def_of` returns the node of each number.
std::string PathText(const std::vector<int>& path, FunctionRef<const OperatorDef&(int)> def_of);

// Returns a topological order of the numbers 0 to nodes - 1, by Kahn's algorithm. Of several ready
// numbers, the number with the least key comes first; without keys, the least number. If the edges
// have a cycle, calls `refuse`, which must throw, with the cycle: each number follows the number
// that it waits for, and the first number stands again at the end.
std::vector<int> SortByEdges(int nodes, const std::vector<GraphView::Edge>& edges,
                             std::span<const int> keys,
                             FunctionRef<void(const std::vector<int>& cycle)> refuse);

}  // namespace detail

// The treatment of nodes with unregistered operators. kRefused: an Error (kNotFound) with the
// nearest name. kAllowed: no error, so that a partitioner can take them.
enum class UnknownOperators : uint8_t { kRefused, kAllowed };

// Throws every error that can be found without types and shapes: the errors of GraphView, and those
// that schemas find in nodes (unknown operator, arity, in-place, attributes), with the node. Throws
// kUninitialized for a constant whose elements were released.
void Check(const Graph& graph, UnknownOperators unknown = UnknownOperators::kRefused);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_view.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_VIEW_HPP_
