// Loop: runs the graph "body" of its node until a count or a condition ends it. Its gradient runs
// the iterations again, and then backwards by a Scan.
#ifndef OPKIT_OPS_LOOPS_LOOP_HPP_
#define OPKIT_OPS_LOOPS_LOOP_HPP_

#include <limits>

#include "opkit/ops/loops/body_iterations.hpp"
#include "opkit/ops/loops/iteration_gradient.hpp"
#include "opkit/ops/loops/stacked_output.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The node's inputs before the carried values, and the body's inputs before them.
inline constexpr int kLoopCount = 0, kLoopCondition = 1, kLoopFirst = 2;

inline int LoopCarried(const OperatorDef& def) {
  return static_cast<int>(def.inputs().size()) - CountCaptures(def) - kLoopFirst;
}
inline IteratedBody LoopBodyOf(const OperatorDef& def) {
  const int carried = LoopCarried(def);
  IteratedBody body =
      IteratedBodyOf(def, carried < 0 ? -1 : kLoopFirst + carried, def.outputs().size() + 1);
  if (def.outputs().size() < Index(carried))
    Throw(ErrorCode::kInvalidArgument, "Loop: the node carries ", carried, " values, but has ",
          def.outputs().size(), " outputs");
  return body;
}
// Returns the value of the condition. Throws unless it is one bool.
inline bool LoopCondition(const Tensor& condition, const char* what) {
  if (condition.dtype() != DType::kBool)
    Throw(ErrorCode::kTypeMismatch, "Loop: ", what, " is ", condition, ", expected one bool");
  if (condition.numel() != 1)
    Throw(ErrorCode::kInvalidArgument, "Loop: ", what, " is ", condition, ", expected one bool");
  return *condition.data<bool>();
}
// Returns the trip count, 0 or more. Throws unless it is one int64.
inline int64_t LoopCount(const Tensor& count) {
  if (count.dtype() != DType::kInt64)
    Throw(ErrorCode::kTypeMismatch, "Loop: the trip count is ", count, ", expected one int64");
  if (count.numel() != 1)
    Throw(ErrorCode::kInvalidArgument, "Loop: the trip count is ", count, ", expected one int64");
  return (std::max)(*count.data<int64_t>(), int64_t{0});
}

// Returns the types that hold in all iterations. Inside the body the condition is known: it holds.
inline InferredBody InferLoopBody(const InferenceContext& c, const IteratedBody& body) {
  const auto& inputs = body.graph->inputs();
  std::vector<TensorInfo> own = {TensorInfo(DType::kInt64, ShapeOfOne(inputs[kLoopCount])),
                                 TensorInfo(DType::kBool, ShapeOfOne(inputs[kLoopCondition]))};
  Tensor holds(ShapeOfOne(inputs[kLoopCondition]), DType::kBool);
  *holds.mutable_data<bool>() = true;
  own[kLoopCondition].constant = &holds;
  for (size_t i = kLoopFirst; i < body.own; ++i) {
    const TensorInfo& input = c.input(static_cast<int>(i));
    own.emplace_back(input.dtype, input.shape);
    own.back().element = input.element;
    own.back().holds_sequence = input.holds_sequence;
  }
  return InferIterations(c, body, std::move(own), kLoopFirst, 1, body.own - kLoopFirst);
}

inline void InferLoop(InferenceContext& c) {
  const IteratedBody body = LoopBodyOf(c.def());
  const InferredBody types = InferLoopBody(c, body);
  const int carried = static_cast<int>(body.own) - kLoopFirst;
  for (int o = 0; o < carried; ++o) {
    const TensorInfo& type = types.inputs[Index(kLoopFirst + o)];
    const TensorInfo& made = types.outputs[Index(o + 1)];
    if (IsWrapped(type, made))
      c.SetOutput(o, made.dtype, {});
    else
      c.SetOutput(o, type);
  }
  // The number of iterations is known if the count is, and if no condition ends the loop earlier.
  const auto is_true = [](const Tensor& t) {
    return t.initialized() && t.dtype() == DType::kBool && t.numel() == 1 && *t.data<bool>();
  };
  Dim trips;
  const Tensor* count = c.HasInput(kLoopCount) ? c.input_constant(kLoopCount) : nullptr;
  const Tensor* condition = c.HasInput(kLoopCondition) ? c.input_constant(kLoopCondition) : nullptr;
  const bool begins = !c.HasInput(kLoopCondition) || (condition && is_true(*condition));
  if (count && begins && is_true(types.data[0])) trips = Dim(LoopCount(*count));
  for (int o = carried; o < c.num_outputs(); ++o) {
    const TensorInfo& slice = types.outputs[Index(o + 1)];
    if (!slice.shape.has_rank()) {
      c.SetOutput(o, slice.dtype, {});
      continue;
    }
    std::vector<Dim> dims{trips};
    for (const Dim& dim : slice.shape.dims()) dims.push_back(dim);
    c.SetOutput(o, slice.dtype, SymbolicShape(std::move(dims)));
  }
}

class LoopGradient final : public IterationGradient {
 public:
  using IterationGradient::IterationGradient;

 private:
  void Make() override {
    const IteratedBody loop = LoopBodyOf(Def());
    const Graph body = ScannedBody(loop);
    ScanArguments scan;
    scan.states = loop.own - kLoopFirst;
    scan.inputs = 1;  // the numbers of the iterations
    scan.outputs = Def().outputs().size() - scan.states;
    scan.body = {&body, scan.states + 1, loop.captures};
    scan.input_axes = scan.input_directions = {0};
    scan.output_axes.assign(scan.outputs, 0);
    scan.output_directions.assign(scan.outputs, 0);
    const ScanBackward back(scan, GivenGradients());
    if (back.backward().outputs().empty()) return;
    // The numbers of the iterations, and the states before each of them.
    std::vector<std::string> stacked = {loop.graph->inputs()[kLoopCount].name}, before;
    for (const size_t i : back.read_states()) stacked.push_back(body.inputs()[i].name);
    OperatorDef again("Loop", Def().inputs(), {});
    for (size_t i = 0; i < scan.states; ++i) again.Output(Temporary("state"));
    const std::string numbers = Temporary("iterations");
    again.Output(numbers);
    for (size_t i = 0; i < back.read_states().size(); ++i)
      again.Output(before.emplace_back(Temporary("states")));
    if (const Attribute* captures = Def().args().Find("captures")) again.Arg("captures", *captures);
    Graph stacking = ScanBackward::Stacking(*loop.graph, 1 + scan.states, stacked);
    AddNode(std::move(again.Subgraph(kIteratedBody, MakeSubgraph(std::move(stacking)))));
    AddBackwardScan(scan, back, kLoopFirst, {numbers}, before);
  }
  // Returns the body as a Scan runs it: its inputs are the states, the number of the iteration, and
  // the captured values. The condition holds.
  static Graph ScannedBody(const IteratedBody& loop) {
    const Graph& body = *loop.graph;
    Graph graph;
    for (size_t i = kLoopFirst; i < loop.own; ++i) graph.AddInput(body.inputs()[i]);
    graph.AddInput(body.inputs()[kLoopCount]);
    for (size_t i = loop.own; i < body.inputs().size(); ++i) graph.AddInput(body.inputs()[i]);
    const Graph::Input& condition = body.inputs()[kLoopCondition];
    Tensor holds(ShapeOfOne(condition), DType::kBool);
    *holds.mutable_data<bool>() = true;
    graph.AddConstant(condition.name, holds);
    for (const Graph::Constant& constant : body.constants())
      graph.AddConstant(constant.name, constant.value);
    for (const OperatorDef& node : body.nodes()) graph.AddNode(node);
    for (size_t o = 1; o < body.outputs().size(); ++o) graph.AddOutput(body.outputs()[o]);
    return graph;
  }
};
OPKIT_REGISTER_GRADIENT(Loop, LoopGradient);

}  // namespace detail

class LoopOp final : public detail::IteratedOperator {
 public:
  LoopOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : IteratedOperator(def, ws, config, detail::LoopBodyOf(def)),
        carried_(body_, detail::kLoopFirst, 1, Carried()),
        stacks_(def.outputs().size() - Carried()) {}

  bool RunOnDevice() override {
    struct EndOfRun {
      LoopOp& self;
      ~EndOfRun() {
        self.body_.End();
        self.carried_.End();
        for (detail::StackedOutput& stack : self.stacks_) stack = {};
      }
    } end{*this};
    const int64_t count = HasInput(detail::kLoopCount)
                              ? detail::LoopCount(Input(detail::kLoopCount))
                              : (std::numeric_limits<int64_t>::max)();
    bool goes_on = !HasInput(detail::kLoopCondition) ||
                   detail::LoopCondition(Input(detail::kLoopCondition), "the condition");
    Begin(count);
    for (int64_t i = 0; i < count && goes_on; ++i) goes_on = Iterate(i);
    for (int o = 0; o < OutputSize(); ++o) {
      if (!HasOutput(o)) continue;
      const size_t at = detail::Index(o);
      SetOutputTensor(o, at < Carried() ? carried_.Take(at) : stacks_[at - Carried()].Take());
    }
    return true;
  }

 private:
  size_t Carried() const { return body_.body().own - detail::kLoopFirst; }

  void Begin(int64_t count) {
    std::vector<const Tensor*> given;
    for (int i = 0; i < InputSize(); ++i) given.push_back(HasInput(i) ? &Input(i) : nullptr);
    types_.Update(def(), given, [this](const InferenceContext& c) { return InferBodyTypes(c); });
    body_.ReadCaptures(*this);
    for (size_t i = 0; i < Carried(); ++i)
      body_.input(detail::kLoopFirst + i) = Input(static_cast<int>(detail::kLoopFirst + i));
    carried_.Begin(types_.types());
    for (size_t i = 0; i < stacks_.size(); ++i) {
      const int o = static_cast<int>(Carried() + i);
      const TensorInfo& slice = types_.types().outputs[detail::Index(o + 1)];
      stacks_[i].Begin(slice, count);
      if (!HasOutput(o)) continue;
      if (const std::optional<Shape> whole = stacks_[i].WholeShape())
        stacks_[i].UseMemory(*Output(o, *whole, slice.dtype));
    }
  }
  // Runs iteration i. Returns true if the body's condition holds.
  bool Iterate(int64_t i) {
    *One(detail::kLoopCount, DType::kInt64).mutable_data<int64_t>() = i;
    *One(detail::kLoopCondition, DType::kBool).mutable_data<bool>() = true;
    carried_.PlaceOutputs();
    for (size_t k = 0; k < stacks_.size(); ++k)
      if (HasOutput(static_cast<int>(Carried() + k)))
        body_.Place(1 + Carried() + k, stacks_[k].Place(i));
    body_.Run(i);
    for (size_t k = 0; k < stacks_.size(); ++k)
      if (HasOutput(static_cast<int>(Carried() + k)))
        stacks_[k].Add(i, body_.output(1 + Carried() + k), static_cast<int>(1 + Carried() + k));
    const bool goes_on = detail::LoopCondition(body_.output(0), "the condition of the body");
    carried_.TakeOver();
    return goes_on;
  }
  // Returns input i of the body, a tensor of one element whose memory no other tensor shares.
  Tensor& One(int i, DType dtype) {
    Tensor& input = body_.input(detail::Index(i));
    if (input.dtype() != dtype || input.storage().use_count() != 1)
      input = Tensor(detail::ShapeOfOne(body_.body().graph->inputs()[detail::Index(i)]), dtype);
    return input;
  }
  detail::InferredBody InferBodyTypes(const InferenceContext& c) const override {
    return detail::InferLoopBody(c, body_.body());
  }

  detail::CarriedValues carried_;
  std::vector<detail::StackedOutput> stacks_;
  detail::IterationTypes types_;
};

OPKIT_STANDARD_OPERATOR(Loop, kMaker, LoopOp)
    .NumInputs(2, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "M", "the largest number of iterations; without it, only `cond` ends the loop",
           {DType::kInt64})
    .Input(1, "cond", "one element: no iteration runs if it does not hold; without it, it holds",
           {DType::kBool})
    .Input(2, "v_initial",
           "the carried values before the first iteration, and behind them the "
           "values that the body captures")
    .Output(0, "v_final_and_scan_outputs",
            "the carried values after the last iteration; then, for each further output of the "
            "body, its values in all iterations, stacked along a new first axis")
    .Arg<std::vector<std::string>>("captures", "the names that the last inputs have in the body")
    .RunsSubgraphs()
    .Infer(detail::InferLoop)
    .Cost([](auto&...) { return OpCost(); })
    .Doc(
        "Runs the subgraph `body` at most `M` times, as long as the condition holds. The body's "
        "inputs are the number of the iteration, the condition and the carried values; captured "
        "values follow, by name. Its outputs are the condition for the next iteration, the "
        "carried values and the values to stack. A carried value may change its shape, but not "
        "its dtype. Without an iteration, a stacked output has the extent 0 on its first axis.");

}}  // namespace opkit

#endif  // OPKIT_OPS_LOOPS_LOOP_HPP_
