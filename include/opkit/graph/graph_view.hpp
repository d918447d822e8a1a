// GraphView: which node makes each value and which nodes read it, which node waits for which, and
// in what order they can run: a snapshot of a graph as numbers, which inference, passes and plans
// walk.
#ifndef OPKIT_GRAPH_GRAPH_VIEW_HPP_
#define OPKIT_GRAPH_GRAPH_VIEW_HPP_

#include <span>

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/graph.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Calls visit(name) for every value that the node rewrites: an input that is also an output by the
// same name, or that the operator's schema says is mutated. A name may come twice.
void ForEachRewritten(const OperatorDef& def, FunctionRef<void(const std::string&)> visit);

}  // namespace detail

// Values and nodes are numbers; nodes have the graph's indices. The graph must outlive the view and
// not change meanwhile.
class GraphView {
 public:
  struct Edge {
    int from;  // runs before
    int to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  // The node writes to a value that an input of the graph or another node makes.
  struct Rewrite {
    int value;
    int node;
  };

  // Checks the structure. Errors: kNotFound for a value that a node reads and nothing makes, or a
  // control input that names no node; kInvalidArgument for a cycle, shown as a path.
  explicit GraphView(const Graph& graph);

  const Graph& graph() const { return *graph_; }
  int num_nodes() const { return graph_->num_nodes(); }
  // Inputs of the graph come first, then constants, then values that nodes make.
  int num_values() const { return names_.size(); }
  const std::string& name(int value) const { return names_[value]; }
  const std::vector<std::string>& names() const { return names_.names(); }
  // -1 when the graph has no value of that name.
  int FindValue(std::string_view name) const { return names_.Find(name); }
  bool IsInput(int value) const { return value < num_inputs(); }
  bool IsConstant(int value) const {
    return value >= num_inputs() && value < num_inputs() + num_constants();
  }
  const Tensor* constant(int value) const {
    if (!IsConstant(value)) return nullptr;
    return &graph_->constants()[detail::Index(value - num_inputs())].value;
  }
  bool IsOutput(int value) const { return is_output_[detail::Index(value)] != 0; }
  const std::vector<int>& outputs() const { return outputs_; }

  // Values of a node, -1 where it leaves one out.
  std::span<const int> inputs(int node) const {
    return {values_.data() + offsets_[detail::Index(node)], graph_->node(node).inputs().size()};
  }
  std::span<const int> outputs(int node) const {
    const OperatorDef& def = graph_->node(node);
    return {values_.data() + offsets_[detail::Index(node)] + def.inputs().size(),
            def.outputs().size()};
  }
  // The node that makes a value; -1 for inputs and constants.
  int producer(int value) const { return producers_[detail::Index(value)]; }
  // Nodes that read the value, each once, by index.
  std::span<const int> consumers(int value) const {
    const int* first = first_consumer_.data() + detail::Index(value);
    return {consumers_.data() + first[0], consumers_.data() + first[1]};
  }
  // Some node rewrites the value, so its data before and after that node differs.
  bool IsRewritten(int value) const { return is_rewritten_[detail::Index(value)] != 0; }
  // By the node that writes.
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }

  // From every node to those that must wait for it: it makes what they read, or reads what they
  // rewrite, or they name it as control input. Each once, sorted by `to`, then by `from`.
  const std::vector<Edge>& edges() const { return edges_; }
  // The edges that lead to a node begin at edges()[FirstEdgeTo(node)].
  size_t FirstEdgeTo(int node) const;
  // Nodes so that each comes after those it waits for; in the order in which they were added where
  // that allows it.
  const std::vector<int>& order() const { return order_; }

 private:
  int num_inputs() const { return static_cast<int>(graph_->inputs().size()); }
  int num_constants() const { return static_cast<int>(graph_->constants().size()); }
  void AddNode(int node);
  void IndexConsumers();

  const Graph* graph_;
  NameIndex names_;
  std::vector<int> producers_;         // by value
  std::vector<int> values_, offsets_;  // of nodes, inputs then outputs
  std::vector<int> consumers_, first_consumer_;
  std::vector<int> outputs_;
  std::vector<char> is_output_, is_rewritten_;  // by value
  std::vector<Rewrite> rewrites_;
  std::vector<Edge> edges_;
  std::vector<int> order_;
};

// What happens to nodes whose operators nobody registered: an Error (kNotFound) with the nearest
// name, or nothing, so that a partitioner can take them.
enum class UnknownOperators : uint8_t { kRefused, kAllowed };

// Every error that can be found without types and shapes: those of GraphView, those that schemas
// find in nodes (unknown operator, arity, in-place, attributes), with the node, and kUninitialized
// for a constant whose elements were released.
void Check(const Graph& graph, UnknownOperators unknown = UnknownOperators::kRefused);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_view.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_VIEW_HPP_
