// IteratedBody: the body of a node that runs it again and again. InferIterations: the types that
// hold in all iterations. Loop, Scan and SequenceMap infer with them.
#ifndef OPKIT_OPS_LOOPS_ITERATED_BODY_HPP_
#define OPKIT_OPS_LOOPS_ITERATED_BODY_HPP_

#include <algorithm>
#include <optional>

#include "opkit/base/algorithm.hpp"
#include "opkit/core/tensor.hpp"
#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The graph "body" of a node that runs it again and again. The body's first `own` inputs get new
// tensors in each iteration. The others are captured values of the graph around the node, which the
// node reads as its last inputs.
struct IteratedBody {
  const Graph* graph = nullptr;
  size_t own = 0;
  std::vector<int> captures;  // the node's input, for each input of the body behind the first `own`
};

inline constexpr char kIteratedBody[] = "body";

// Returns the number of the node's inputs that are captured values.
inline int CountCaptures(const OperatorDef& def) {
  return static_cast<int>(def.args().Get<std::vector<std::string>>("captures", {}).size());
}

// Returns the body of a node. `own` and `outputs` are the numbers of inputs and outputs that the
// operator gives it. Throws kInvalidArgument if the node has no body or one with other inputs or
// outputs, and kUnsupported if the body rewrites an input.
inline IteratedBody IteratedBodyOf(const OperatorDef& def, int own, size_t outputs) {
  IteratedBody body;
  body.graph = SubgraphOf(def, kIteratedBody);
  if (!body.graph)
    Throw(ErrorCode::kInvalidArgument, def.type(), " needs the subgraph '", kIteratedBody, "'");
  const auto names = def.args().Get<std::vector<std::string>>("captures", {});
  if (own < 0 || names.size() > def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, def.type(), ": the node has ", def.inputs().size(),
          " inputs, ", names.size(), " of them captured values, and so too few for its body");
  const auto& inputs = body.graph->inputs();
  body.own = Index(own);
  if (inputs.size() < body.own || body.graph->outputs().size() != outputs)
    Throw(ErrorCode::kInvalidArgument, def.type(), ": the body has ", inputs.size(), " inputs and ",
          body.graph->outputs().size(), " outputs, expected at least ", own,
          StrCat(" inputs and ", outputs, " outputs"));
  for (size_t i = body.own; i < inputs.size(); ++i) {
    const auto found = std::ranges::find(names, inputs[i].name);
    if (found == names.end())
      Throw(ErrorCode::kInvalidArgument, def.type(), ": the body's input '", inputs[i].name,
            "' is not among the captures, ", names, ", and the node gives the body only ", own,
            " other inputs");
    body.captures.push_back(
        static_cast<int>(def.inputs().size() - names.size() + Index(found - names.begin())));
  }
  for (size_t i = 0; i < body.own; ++i)
    if (Contains(names, inputs[i].name))
      Throw(ErrorCode::kInvalidArgument, def.type(), ": the node gives the body ", own,
            " inputs, but the body's input ", i, " is the captured value '", inputs[i].name, "'");
  const std::vector<int> rewritten = def.FindSubgraph(kIteratedBody)->MutatedInputs();
  if (!rewritten.empty())
    Throw(ErrorCode::kUnsupported, def.type(), ": the body rewrites its input '",
          inputs[Index(rewritten[0])].name, "'; make it write to a copy");
  return body;
}

// Returns the shape that the body wants for an input of one element: one axis if it declares that,
// else none.
inline Shape ShapeOfOne(const Graph::Input& input) {
  const SymbolicShape& declared = input.info.shape;
  return declared.has_rank() && declared.rank() == 1 ? Shape{1} : Shape{};
}

// True if the body takes a carried value as an optional one and makes its element, a tensor or a
// sequence. Each iteration then gets the element as an optional value, and the node returns the
// element.
inline bool IsWrapped(const TensorInfo& taken, const TensorInfo& made) {
  return taken.dtype == DType::kOptional && made.dtype != DType::kOptional &&
         made.dtype != DType::kUndefined;
}

// Infers the types of the body that hold in every iteration. `own` are the types of the body's own
// inputs in the first iteration. Values are carried from output `first_output + i` to input
// `first_input + i`, for i < `carried`. An extent of a carried value is unknown if an iteration may
// change it, and so is its whole shape if an iteration may change its rank. Throws kTypeMismatch if
// an iteration changes the dtype, and the errors of inference.
inline InferredBody InferIterations(const InferenceContext& c, const IteratedBody& body,
                                    std::vector<TensorInfo> own, size_t first_input,
                                    size_t first_output, size_t carried) {
  for (const int capture : body.captures) {
    own.push_back(c.input(capture));
    own.back().constant = c.input_constant(capture);
  }
  while (true) {
    InferredBody found = InferBody(c.def(), *body.graph, own, kIteratedBody);
    bool changed = false;
    for (size_t i = 0; i < carried; ++i) {
      TensorInfo& from = own[first_input + i];
      const TensorInfo& to = found.outputs[first_output + i];
      if (IsWrapped(from, to)) {  // absent or present: both have rank 1
        changed |= from.shape.is_known();
        from.shape = SymbolicShape(std::vector<Dim>{Dim()});
        continue;
      }
      if (from.dtype != to.dtype && from.dtype != DType::kUndefined &&
          to.dtype != DType::kUndefined)
        Throw(ErrorCode::kTypeMismatch, c.def().type(), ": the carried value '",
              body.graph->inputs()[first_input + i].name, "' is ", from.dtype,
              " before an iteration and ", to.dtype, " after it");
      if (from.element != to.element && from.element != DType::kUndefined &&
          to.element != DType::kUndefined)
        Throw(ErrorCode::kTypeMismatch, c.def().type(), ": the carried value '",
              body.graph->inputs()[first_input + i].name, "' has elements of ", from.element,
              " before an iteration and of ", to.element, " after it");
      if (from.shape == to.shape || !from.shape.has_rank()) continue;
      SymbolicShape either;
      if (to.shape.has_rank() && to.shape.rank() == from.shape.rank()) {
        either = from.shape;
        for (int axis = 0; axis < either.rank(); ++axis)
          if (either[axis] != to.shape[axis]) either[axis] = Dim();
      }
      changed |= either != from.shape;
      from.shape = either;
    }
    if (changed) continue;
    for (size_t i = 0; i < body.own; ++i) {
      found.inputs[i] = own[i];
      found.inputs[i].constant = nullptr;
    }
    return found;
  }
}

// The types of a body for the inputs of the last run. Infers again only for other dtypes or shapes.
class IterationTypes {
 public:
  // `inputs` are the node's; null for an input that the node leaves out. `infer` is called with a
  // context that has their types.
  void Update(const OperatorDef& def, const std::vector<const Tensor*>& inputs,
              FunctionRef<InferredBody(const InferenceContext&)> infer) {
    if (types_ && InferenceCache::Match(inputs_, inputs)) return;
    types_.reset();
    inputs_.clear();
    std::vector<TensorInfo> infos;
    for (const Tensor* input : inputs) {
      infos.push_back(input ? TensorInfo(input->dtype(), input->shape()) : TensorInfo());
      inputs_.push_back(
          {infos.back().dtype, input ? true : false, input ? input->shape() : Shape()});
    }
    types_ = infer(InferenceContext(def, std::move(infos)));
  }
  const InferredBody& types() const { return *types_; }

 private:
  std::vector<InferenceCache::Output> inputs_;
  std::optional<InferredBody> types_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_LOOPS_ITERATED_BODY_HPP_
