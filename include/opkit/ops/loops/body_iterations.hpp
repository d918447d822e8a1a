// BodyIterations: runs the body of a node again and again. CarriedValues: what one iteration hands
// to the next. IteratedOperator: the base of Loop, Scan and SequenceMap.
#ifndef OPKIT_OPS_LOOPS_BODY_ITERATIONS_HPP_
#define OPKIT_OPS_LOOPS_BODY_ITERATIONS_HPP_

#include "opkit/core/sequence.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/node_bodies.hpp"
#include "opkit/ops/loops/iterated_body.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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
