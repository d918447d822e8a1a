// InferGraph: dtypes and shapes of every value of a graph, from what is known about its inputs and
// constants and from the schemas of its nodes. Symbols that meet a number, or each other, become
// one extent everywhere. Small nodes whose inputs are known data (the arithmetic on shapes that
// exporters leave in models) are evaluated on the way, so that shapes made of their results are
// known too.
#ifndef OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
#define OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

#include "opkit/graph/graph_view.hpp"

namespace opkit::inline OPKIT_ABI {

// Dtype, shape, device and known data of the values of a graph, by the numbers of its view, which
// must outlive this. Where data decides a shape, extents or even the rank stay unknown.
class GraphTypes {
 public:
  explicit GraphTypes(const GraphView& view)
      : view_(&view),
        infos_(detail::Index(view.num_values())),
        lacks_data_(detail::Index(view.num_nodes()), 0) {}

  const TensorInfo& operator[](int value) const { return infos_[detail::Index(value)]; }
  TensorInfo& operator[](int value) { return infos_[detail::Index(value)]; }
  // Data of a value that is no constant of the graph, but known before it runs.
  void SetData(int value, const Tensor& data);
  // Infos of a node's values, a plain TensorInfo where it leaves one out.
  std::vector<TensorInfo> Of(std::span<const int> values) const;
  // True where the inference of a node asked for data of an input that only a run has.
  bool LacksData(int node) const { return lacks_data_[detail::Index(node)] != 0; }
  void SetLacksData(int node, bool lacks) { lacks_data_[detail::Index(node)] = lacks; }
  // Error (kNotFound) that names the nearest value.
  const TensorInfo& at(std::string_view name) const;

 private:
  const GraphView* view_;
  std::vector<TensorInfo> infos_;
  std::vector<char> lacks_data_;  // by node
  detail::RefCountedList data_;   // of Shared<Tensor>: the data given to SetData
};

// `known` adds to what the graph declares of its inputs (the shapes of a run). Errors, showing both
// sides: kInvalidArgument where two sources contradict each other, kNotFound for a name in `known`
// that is no input, kOutOfRange where a node makes more bytes than an int64 counts, and the errors
// of the operators' own functions. Nothing is learned from a node whose operator is not registered,
// where those are allowed. In a library, the operators of its program are asked as well.
GraphTypes InferGraph(const GraphView& view, const std::vector<GraphInput>& known = {},
                      UnknownOperators unknown = UnknownOperators::kRefused);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_inference.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
