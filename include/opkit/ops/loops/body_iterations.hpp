// BodyIterations: runs the body of a node again and again. InferIterations: the types that hold in
// all iterations. Loop, Scan and SequenceMap stand on this file.
#ifndef OPKIT_OPS_LOOPS_BODY_ITERATIONS_HPP_
#define OPKIT_OPS_LOOPS_BODY_ITERATIONS_HPP_

#include <algorithm>

#include "opkit/base/algorithm.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/node_bodies.hpp"
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

// Returns the shape with one more axis before the others.
inline Shape WithFirst(int64_t extent, const Shape& shape) {
  std::vector<int64_t> dims{extent};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return Shape(dims);
}

// An output that collects one slice of each iteration along a new first axis.
class StackedOutput {
 public:
  // `slice` is the type of a slice as it is known before the run, and `expected` the largest number
  // of slices. Reserves no more than kMostReserved bytes beforehand.
  void Begin(const TensorInfo& slice, int64_t expected) {
    slice_ = &slice;
    expected_ = expected;
    count_ = 0;
    stack_ = Tensor();
  }
  // Collects the slices in `memory`, whose first extent is the expected number. Call it after
  // Begin.
  void UseMemory(const Tensor& memory) {
    stack_ = memory;
    stack_.raw_mutable_data();
    shape_ = slice_->shape.ToShape();
  }
  // Returns the shape of all expected slices if it is known and not too large to reserve.
  std::optional<Shape> WholeShape() const {
    if (!slice_->shape.is_known() || slice_->dtype == DType::kUndefined) return {};
    const Shape slice = slice_->shape.ToShape();
    const int64_t bytes = BytesOfSlice(slice, slice_->dtype);
    if (expected_ < 1 || expected_ > kMostReserved / bytes) return {};
    return WithFirst(expected_, slice);
  }
  // Returns the memory of slice `at`, for the body to write to. Returns a tensor without dtype if
  // the slice's shape is not known beforehand.
  Tensor Place(int64_t at) {
    if (!slice_->shape.is_known() || slice_->dtype == DType::kUndefined) return {};
    Reserve(slice_->shape.ToShape(), slice_->dtype, at);
    return SliceOf(at);
  }
  // Adds a slice. Copies it unless it lies in its place. Throws kInvalidArgument if its shape is
  // not that of the slices before.
  void Add(int64_t at, const Tensor& slice, int output) {
    if (count_ > 0 && (slice.shape() != shape_ || slice.dtype() != stack_.dtype()))
      Throw(ErrorCode::kInvalidArgument, "output ", output, " of the body is ", slice,
            ", but the iterations before made a value of shape ", shape_, " and dtype ",
            stack_.dtype(), "; all are stacked, so that they must be equal");
    Reserve(slice.shape(), slice.dtype(), at);
    Tensor place = SliceOf(at);
    if (slice.raw_data() != place.raw_data() || !slice.is_dense()) place.CopyFrom(slice);
    ++count_;
  }
  // Returns the slices; without an iteration, an empty tensor, in which unknown extents are 0.
  Tensor Take() {
    if (count_ == 0) {
      std::vector<int64_t> dims{0};
      for (int axis = 0; slice_->shape.has_rank() && axis < slice_->shape.rank(); ++axis)
        dims.push_back(slice_->shape[axis].is_known() ? slice_->shape[axis].value() : 0);
      if (slice_->dtype == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument,
              "no iteration ran, and the dtype of a stacked output is not known without one");
      return Tensor(Shape(dims), slice_->dtype);
    }
    Tensor result = std::exchange(stack_, Tensor());
    return count_ == result.dim(0) ? result : result.Slice(0, 0, count_).Contiguous();
  }

 private:
  static constexpr int64_t kMostReserved = int64_t{64} << 20;

  // Returns the bytes of a slice without the characters of its strings, at least 1. Throws
  // kTypeMismatch for a value that is no tensor.
  static int64_t BytesOfSlice(const Shape& slice, DType dtype) {
    if (dtype == DType::kSequence || dtype == DType::kOptional)
      Throw(ErrorCode::kTypeMismatch, "a stacked output of the body is a value of type ", dtype,
            ", but only tensors are stacked; carry it from one iteration to the next");
    const int64_t bytes = dtype == DType::kString
                              ? slice.numel() * static_cast<int64_t>(sizeof(std::string))
                              : BytesOf(slice.numel(), dtype);
    return (std::max)(bytes, int64_t{1});
  }
  void Reserve(const Shape& slice, DType dtype, int64_t at) {
    if (stack_.dtype() != DType::kUndefined && at < stack_.dim(0)) return;
    shape_ = slice;
    const int64_t bytes = BytesOfSlice(slice, dtype);
    int64_t extent = (std::min)(expected_, (std::max)(kMostReserved / bytes, int64_t{1}));
    if (stack_.dtype() != DType::kUndefined) extent = (std::min)(expected_, stack_.dim(0) * 2);
    extent = (std::max)(extent, at + 1);
    Tensor larger(WithFirst(extent, slice), dtype);
    larger.raw_mutable_data();
    if (count_ > 0) larger.Slice(0, 0, stack_.dim(0)).CopyFrom(stack_);
    stack_ = std::move(larger);
  }
  Tensor SliceOf(int64_t at) const { return stack_.Slice(0, at, at + 1).View(Dims(shape_)); }

  const TensorInfo* slice_ = nullptr;
  int64_t expected_ = 0, count_ = 0;
  Shape shape_;
  Tensor stack_;
};

// Runs the body of a node, one iteration after the other. In a plan, the plan's runner executes the
// body. Outside a plan, compiles the body in the first iteration and keeps the executor. Values
// keep their memory: a carried value whose shape is known lies in one of two buffers in turn.
class BodyIterations {
 public:
  explicit BodyIterations(IteratedBody body)
      : body_(std::move(body)), inputs_(body_.graph->inputs().size()) {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].name = body_.graph->inputs()[i].name;
  }
  const IteratedBody& body() const { return body_; }
  // Sets the runner of the body; null: the body runs in an executor of its own.
  void UseRunner(BodyRunner* runner) { runner_ = runner; }
  // Returns the tensor of input i of the next iteration.
  Tensor& input(size_t i) { return runner_ ? runner_->BodyInput(i) : inputs_[i].tensor; }
  // Gives the body the captured values; `op` is the node.
  void ReadCaptures(const OperatorBase& op) {
    for (size_t i = 0; i < body_.captures.size(); ++i)
      input(body_.own + i) = op.Input(body_.captures[i]);
  }
  // Makes the next iteration write output o to `place`. Without a dtype in `place`, the iteration
  // chooses the memory.
  void Place(size_t o, const Tensor& place) {
    if (!IsMade(o)) return;
    if (!runner_) return OwnExecutor().Bind(OwnExecutor().plan().graph().outputs()[o], place);
    Tensor& output = runner_->BodyOutput(o);
    if (place.dtype() != DType::kUndefined)
      output = place;
    else if (output.storage().use_count() > 1)
      output = Tensor();
  }
  // Runs one iteration; `iteration` is its number, for messages. The inputs keep their tensors.
  void Run(int64_t iteration) {
    InContext(
        [&] {
          if (!runner_) {
            outputs_ = OwnExecutor().Run(inputs_);
            return;
          }
          const InvocationScope scope(Invocation::Kind::kUserCode,
                                      [] { return SpanNames{InternName("iteration")}; });
          runner_->RunBody();
        },
        [&] { return StrCat("in iteration ", iteration, " of the body"); });
  }
  // Returns output o of the last iteration.
  const Tensor& output(size_t o) { return runner_ ? runner_->BodyOutput(o) : outputs_[o]; }
  // Returns output o, which the body then no longer has unless it is an input or a constant.
  Tensor TakeOutput(size_t o) {
    return runner_ && IsMade(o) ? std::exchange(runner_->BodyOutput(o), Tensor()) : output(o);
  }
  // Ends an iteration whose outputs have been taken.
  void DropOutputs() { outputs_ = {}; }
  // True if a node of the body makes output o. If not, output o is an input or a constant.
  bool IsMade(size_t o) {
    const Graph& graph = runner_ ? *body_.graph : OwnExecutor().plan().graph();
    return graph.Producer(graph.outputs()[o]) >= 0;
  }
  // Releases all tensors of the run.
  void End() {
    outputs_ = {};
    for (size_t i = 0; i < inputs_.size(); ++i) input(i) = Tensor();
    if (!runner_ && !executor_) return;
    for (size_t o = 0; o < body_.graph->outputs().size(); ++o)
      if (!runner_)
        executor_->Bind(executor_->plan().graph().outputs()[o], Tensor());
      else if (IsMade(o))
        runner_->BodyOutput(o) = Tensor();
  }

 private:
  Executor& OwnExecutor() {
    if (!executor_) {
      PlanOptions options;
      options.threads = ThreadPool::Current().threads();
      options.schedule.deterministic = true;
      executor_.emplace(InContext([&] { return Compile(*body_.graph, options); },
                                  [] { return std::string("in the body"); }));
    }
    return *executor_;
  }

  BodyRunner* runner_ = nullptr;
  IteratedBody body_;
  std::vector<NamedTensor> inputs_;
  NamedTensors outputs_;
  std::optional<Executor> executor_;
};

// The values that one iteration hands to the next. A value whose shape is known beforehand lies in
// two buffers in turn, so that an iteration copies and allocates nothing.
class CarriedValues {
 public:
  // Values are carried from output `first_output + i` of the body to input `first_input + i`.
  CarriedValues(BodyIterations& body, size_t first_input, size_t first_output, size_t count)
      : body_(body), first_input_(first_input), first_output_(first_output), spare_(count) {}

  // Sets the types that hold in all iterations, as InferIterations returns them.
  void Begin(const InferredBody& types) {
    types_ = &types;
    iterations_ = 0;
  }
  void PlaceOutputs() {
    for (size_t i = 0; i < spare_.size(); ++i) {
      const TensorInfo& type = types_->inputs[first_input_ + i];
      const bool fits = type.shape.is_known() && spare_[i].dtype() == type.dtype &&
                        spare_[i].storage().use_count() == 1;
      body_.Place(first_output_ + i, fits ? spare_[i] : Tensor());
      spare_[i] = Tensor();
    }
  }
  // Makes the outputs of an iteration the inputs of the next.
  void TakeOver() {
    for (size_t i = 0; i < spare_.size(); ++i) {
      Tensor& input = body_.input(first_input_ + i);
      // The node's inputs belong to other nodes: nothing may be written there.
      if (iterations_ > 0) spare_[i] = input;
    }
    std::vector<Tensor>& next = next_;
    for (size_t i = 0; i < spare_.size(); ++i) {
      next.push_back(body_.TakeOutput(first_output_ + i));
      if (IsWrapped(i)) next.back() = MakeOptional(next.back().Contiguous());
    }
    for (size_t i = 0; i < spare_.size(); ++i) body_.input(first_input_ + i) = std::move(next[i]);
    next.clear();
    body_.DropOutputs();
    ++iterations_;
  }
  // Returns value i. A tensor that shares memory with an input or constant of the body is a copy.
  Tensor Take(size_t i) {
    Tensor result = std::exchange(body_.input(first_input_ + i), Tensor());
    if (IsWrapped(i)) {
      if (result.numel() == 0)
        Throw(ErrorCode::kInvalidArgument, "no iteration ran, and carried value ", i,
              " is an absent optional value");
      return ElementsOf(result)[0].Contiguous();
    }
    const bool made = iterations_ > 0 && body_.IsMade(first_output_ + i);
    return made ? result : result.Contiguous();
  }
  void End() {
    next_.clear();
    for (Tensor& spare : spare_) spare = Tensor();
  }

 private:
  bool IsWrapped(size_t i) const {
    return detail::IsWrapped(types_->inputs[first_input_ + i], types_->outputs[first_output_ + i]);
  }

  BodyIterations& body_;
  const size_t first_input_, first_output_;
  const InferredBody* types_ = nullptr;
  int64_t iterations_ = 0;
  std::vector<Tensor> spare_;  // the buffers that the next iteration writes to
  std::vector<Tensor> next_;   // only during TakeOver
};

// The base of Loop, Scan and SequenceMap: shows the body to the plan.
class IteratedOperator : public Operator<CPUContext>, public RunsBodies {
 public:
  IteratedOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config,
                   IteratedBody body)
      : Operator<CPUContext>(def, ws, config),
        body_(std::move(body)),
        bodies_{{kIteratedBody, body_.body().graph, {}, /*apart=*/true}} {}

  const std::vector<NodeBody>& bodies() const final { return bodies_; }
  void UseRunners(std::vector<BodyRunner*> runners) final { body_.UseRunner(runners[0]); }
  std::vector<TensorInfo> TypesInBody(int, const std::vector<TensorInfo>& inputs) const final {
    std::vector<TensorInfo> types = InferBodyTypes(InferenceContext(def(), inputs)).inputs;
    for (size_t i = 0; i < body_.body().captures.size(); ++i)
      types[body_.body().own + i].constant = inputs[Index(body_.body().captures[i])].constant;
    return types;
  }

 protected:
  // Returns the types of the body that hold in all iterations.
  virtual InferredBody InferBodyTypes(const InferenceContext& c) const = 0;

  BodyIterations body_;

 private:
  const std::vector<NodeBody> bodies_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_LOOPS_BODY_ITERATIONS_HPP_
