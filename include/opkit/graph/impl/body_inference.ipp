// The definitions of body inference, and a cache of results: a body is inferred once for each set
// of input types.
#ifndef OPKIT_GRAPH_IMPL_BODY_INFERENCE_IPP_
#define OPKIT_GRAPH_IMPL_BODY_INFERENCE_IPP_

#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The cache of results; set while an outermost body is inferred. Inference passes several times
// over a graph and over the bodies of its nodes: without the cache, each level of nesting would
// multiply the passes.
inline constinit thread_local std::vector<InferredBody>* t_inferred_bodies = nullptr;

// Provides the cache of results during the inference of an outermost body.
class InferredBodiesScope {
 public:
  InferredBodiesScope() {
    if (!t_inferred_bodies) t_inferred_bodies = &own_;
  }
  InferredBodiesScope(const InferredBodiesScope&) = delete;
  InferredBodiesScope& operator=(const InferredBodiesScope&) = delete;
  ~InferredBodiesScope() {
    if (t_inferred_bodies == &own_) t_inferred_bodies = nullptr;
  }

 private:
  std::vector<InferredBody> own_;
};

// True if `known` is the result for the graph, input types and input data of `asked`.
inline bool IsOf(const InferredBody& known, const InferredBody& asked) {
  if (known.graph != asked.graph) return false;
  for (size_t i = 0; i < asked.given.size(); ++i)
    if (known.given[i].dtype != asked.given[i].dtype ||
        known.given[i].shape != asked.given[i].shape ||
        Attribute(known.given_data[i]) != Attribute(asked.given_data[i]))
      return false;
  return true;
}

// The prefix that symbols of the enclosing node have inside a body.
inline constexpr char kOuterSymbol = '^';
template <class F>
SymbolicShape MapSymbols(const SymbolicShape& shape, F map) {
  if (!shape.has_rank()) return shape;
  std::vector<Dim> dims;
  for (const Dim& dim : shape.dims()) dims.push_back(dim.is_symbol() ? map(dim.symbol()) : dim);
  return SymbolicShape(std::move(dims));
}
inline SymbolicShape IntoBody(const SymbolicShape& shape) {
  return MapSymbols(shape, [](const std::string& name) { return Sym(kOuterSymbol + name); });
}
inline SymbolicShape OutOfBody(const SymbolicShape& shape) {
  return MapSymbols(shape, [](const std::string& name) {
    return name[0] == kOuterSymbol ? Sym(name.substr(1)) : Dim();
  });
}
inline TensorInfo OutOfBody(const TensorInfo& info) {
  TensorInfo out = info;
  out.shape = OutOfBody(info.shape);
  out.constant = nullptr;
  return out;
}

OPKIT_INLINE InferredBody InferBody(const InferenceContext& c, const Graph& body,
                                    std::span<const int> inputs, std::string_view name,
                                    UnknownOperators unknown) {
  std::vector<TensorInfo> given;
  for (const int input : inputs) {
    given.push_back(c.input(input));
    given.back().constant = c.input_constant(input);
  }
  return InferBody(c.def(), body, given, name, unknown);
}

OPKIT_INLINE InferredBody InferBody(const OperatorDef& def, const Graph& body,
                                    std::span<const TensorInfo> types_given, std::string_view name,
                                    UnknownOperators unknown) {
  const InferredBodiesScope scope;
  InferredBody result;
  result.graph = &body;
  for (const TensorInfo& info : types_given) {
    result.given.push_back(info);
    result.given.back().shape = IntoBody(info.shape);
    result.given.back().constant = nullptr;
    result.given_data.push_back(info.constant ? *info.constant : Tensor());
  }
  for (const InferredBody& known : *t_inferred_bodies)
    if (IsOf(known, result)) return known;
  const auto infer = [&] {
    std::vector<Graph::Input> given;
    for (size_t i = 0; i < result.given.size(); ++i) {
      given.push_back({body.inputs()[i].name, result.given[i]});
      if (result.given_data[i].initialized()) given.back().info.constant = &result.given_data[i];
    }
    const GraphView view(body);
    const GraphTypes types = InferGraph(view, given, unknown);
    for (const Graph::Input& input : body.inputs())
      result.inputs.push_back(OutOfBody(types.Get(input.name)));
    for (const int value : view.outputs()) {
      result.outputs.push_back(OutOfBody(types[value]));
      result.data.push_back(types[value].constant ? *types[value].constant : Tensor());
    }
  };
  InContext(infer, [&] { return StrCat("in ", name, " of ", ToString(def)); });
  t_inferred_bodies->push_back(result);
  return result;
}

OPKIT_INLINE void InferAsBody(InferenceContext& c, const Graph& body, std::string_view name,
                              UnknownOperators unknown) {
  if (Index(c.num_inputs()) != body.inputs().size() ||
      Index(c.num_outputs()) != body.outputs().size())
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the node has ", c.num_inputs(),
          " inputs and ", c.num_outputs(), StrCat(" outputs, but its graph '", name, "' has "),
          body.inputs().size(), " and ", body.outputs().size(),
          "; they are matched by position, so that the counts must be equal");
  std::vector<int> inputs;
  for (size_t i = 0; i < body.inputs().size(); ++i) inputs.push_back(static_cast<int>(i));
  const InferredBody inferred = InferBody(c, body, inputs, name, unknown);
  for (const int i : inputs)
    if (c.HasInput(i))
      c.SetInput(i, inferred.inputs[Index(i)].dtype, inferred.inputs[Index(i)].shape);
  for (int o = 0; o < c.num_outputs(); ++o) {
    const size_t at = Index(o);
    c.SetOutput(o, inferred.outputs[at]);
    if (inferred.data[at].initialized()) c.SetOutputData(o, inferred.data[at]);
  }
}

inline void InferGraphSubgraph(const Graph& body, InferenceContext& context) {
  if (Index(context.num_inputs()) == body.inputs().size() &&
      Index(context.num_outputs()) == body.outputs().size())
    // The node's operator runs the graph itself, and may have operators that are not registered.
    InferAsBody(context, body, "the graph", UnknownOperators::kAllowed);
}
OPKIT_INLINE void UseInferenceOfGraphSubgraphs() {
  g_infer_graph_subgraph.Fill(&InferGraphSubgraph);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_IMPL_BODY_INFERENCE_IPP_
