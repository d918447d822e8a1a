// InferGraph: infers the dtype and shape of every value of a graph from its inputs, its constants
// and the schemas of its nodes. A symbol that must equal a number or another symbol is replaced
// everywhere. Small nodes whose input data is known are evaluated during inference: exporters leave
// such arithmetic on shapes in models, and other shapes depend on the results.
#ifndef OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
#define OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

#include "opkit/graph/graph_view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Dtype, shape, device and known data of each value of a graph, by its number in the view, which
// must outlive this object. If a shape depends on data of a run, extents or the rank stay unknown.
class GraphTypes {
 public:
  explicit GraphTypes(const GraphView& view)
      : view_(&view),
        infos_(detail::Index(view.num_values())),
        lacks_data_(detail::Index(view.num_nodes()), 0) {}

  const TensorInfo& operator[](int value) const { return infos_[value]; }
  TensorInfo& operator[](int value) { return infos_[value]; }
  // Sets the data of a value that is no constant of the graph but is known before a run.
  void SetData(int value, const Tensor& data);
  // Returns the infos of a node's values; an empty TensorInfo for a value that the node leaves out.
  std::vector<TensorInfo> Of(std::span<const int> values) const;
  // True if the inference of the node needed data of an input that only a run has.
  bool LacksData(int node) const { return lacks_data_[node] != 0; }
  void SetLacksData(int node, bool lacks) { lacks_data_[node] = lacks; }
  // Throws kNotFound, with the nearest name, for a name that is no value of the graph.
  const TensorInfo& Get(std::string_view name) const;

 private:
  const GraphView* view_;
  detail::IndexedVector<TensorInfo> infos_;
  detail::IndexedVector<char> lacks_data_;  // by node
  detail::RefCountedList data_;             // Shared<Tensor> objects: the data given to SetData
};

// `known` adds to the graph's declarations of its inputs, for example the shapes of a run. Throws
// kInvalidArgument, with both sides, if two sources contradict each other. Throws kNotFound for a
// name in `known` that is no input, kOutOfRange if the bytes of an output overflow an int64, and
// the errors of the operators' inference functions. With UnknownOperators::kAllowed, skips nodes
// with unregistered operators. In a library, operators of its program count as registered.
GraphTypes InferGraph(const GraphView& view, const std::vector<Graph::Input>& known = {},
                      UnknownOperators unknown = UnknownOperators::kRefused);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_inference.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
