// Scan: runs the graph "body" of its node once for each slice of its inputs. Its gradient is a Scan
// that runs the iterations backwards.
#ifndef OPKIT_OPS_LOOPS_SCAN_HPP_
#define OPKIT_OPS_LOOPS_SCAN_HPP_

#include "opkit/ops/loops/body_iterations.hpp"
#include "opkit/ops/loops/iteration_gradient.hpp"
#include "opkit/ops/loops/stacked_output.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the types that hold in all iterations. `length` gets the extent of the scanned axes.
inline InferredBody InferScanBody(const InferenceContext& c, const ScanArguments& scan,
                                  Dim& length) {
  std::vector<TensorInfo> own;
  for (size_t i = 0; i < scan.body.own; ++i) {
    const TensorInfo& input = c.input(static_cast<int>(i));
    own.emplace_back(input.dtype, input.shape);
    if (i < scan.states || !input.shape.has_rank()) continue;
    const size_t at = i - scan.states;
    const int axis = ScanAxis(scan.input_axes[at], input.shape.rank(), "scan_input_axes");
    const std::optional<Dim> merged = Dim::Merge(length, input.shape[axis]);
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, "Scan: the scanned axis of input ", i, " has the extent ",
            input.shape[axis], ", but another input has ", length);
    length = *merged;
    std::vector<Dim> dims = input.shape.dims();
    dims.erase(dims.begin() + axis);
    own.back().shape = SymbolicShape(std::move(dims));
  }
  return InferIterations(c, scan.body, std::move(own), 0, 0, scan.states);
}

inline void InferScan(InferenceContext& c) {
  const ScanArguments scan = ScanArgumentsOf(c.def());
  Dim length;
  const InferredBody types = InferScanBody(c, scan, length);
  for (size_t o = 0; o < scan.states; ++o)
    c.SetOutput(static_cast<int>(o), types.inputs[o].dtype, types.inputs[o].shape);
  for (size_t k = 0; k < scan.outputs; ++k) {
    const TensorInfo& slice = types.outputs[scan.states + k];
    const int o = static_cast<int>(scan.states + k);
    SymbolicShape shape;
    if (slice.shape.has_rank()) {
      std::vector<Dim> dims = slice.shape.dims();
      const int axis = ScanAxis(scan.output_axes[k], slice.shape.rank() + 1, "scan_output_axes");
      dims.insert(dims.begin() + axis, length);
      shape = SymbolicShape(std::move(dims));
    }
    c.SetOutput(o, slice.dtype, shape);
  }
}

// Returns the order of axes that puts `axis` first, and the order that puts the first axis back.
inline Dims AxisFirst(int axis, int rank) {
  std::vector<int64_t> order{axis};
  for (int i = 0; i < rank; ++i)
    if (i != axis) order.push_back(i);
  return Dims(order);
}
inline Dims FirstAxisTo(int axis, int rank) {
  std::vector<int64_t> order;
  for (int i = 1; i < rank; ++i) order.push_back(i);
  order.insert(order.begin() + axis, 0);
  return Dims(order);
}

}  // namespace detail

class ScanOp final : public detail::IteratedOperator {
 public:
  ScanOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : IteratedOperator(def, ws, config, detail::ScanArgumentsOf(def).body),
        scan_(detail::ScanArgumentsOf(def)),
        states_(body_, 0, 0, scan_.states),
        scanned_(scan_.inputs),
        stacks_(scan_.outputs) {}

  bool RunOnDevice() override {
    struct EndOfRun {
      ScanOp& self;
      ~EndOfRun() {
        self.body_.End();
        self.states_.End();
        for (Tensor& input : self.scanned_) input = Tensor();
        for (detail::StackedOutput& stack : self.stacks_) stack = {};
      }
    } end{*this};
    const int64_t length = Begin();
    for (int64_t i = 0; i < length; ++i) Iterate(i, length);
    for (int o = 0; o < OutputSize(); ++o) {
      if (!HasOutput(o)) continue;
      const size_t at = detail::Index(o);
      if (at < scan_.states) {
        SetOutputTensor(o, states_.Take(at));
        continue;
      }
      Tensor stack = stacks_[at - scan_.states].Take();
      const int axis = OutputAxis(at - scan_.states, stack.rank());
      if (axis != 0) stack = stack.Permute(detail::FirstAxisTo(axis, stack.rank())).Contiguous();
      SetOutputTensor(o, std::move(stack));
    }
    return true;
  }

 private:
  int OutputAxis(size_t k, int rank) const {
    return detail::ScanAxis(scan_.output_axes[k], rank, "scan_output_axes");
  }
  // Returns the number of iterations.
  int64_t Begin() {
    std::vector<const Tensor*> given;
    for (int i = 0; i < InputSize(); ++i) given.push_back(&Input(i));
    types_.Update(def(), given, [this](const InferenceContext& c) { return InferBodyTypes(c); });
    body_.ReadCaptures(*this);
    for (size_t i = 0; i < scan_.states; ++i) body_.input(i) = Input(static_cast<int>(i));
    states_.Begin(types_.types());
    for (size_t i = 0; i < scan_.inputs; ++i) {
      const Tensor& input = Input(static_cast<int>(scan_.states + i));
      const int axis = detail::ScanAxis(scan_.input_axes[i], input.rank(), "scan_input_axes");
      scanned_[i] =
          axis == 0 ? input : input.Permute(detail::AxisFirst(axis, input.rank())).Contiguous();
    }
    const int64_t length = scanned_[0].dim(0);
    for (size_t k = 0; k < stacks_.size(); ++k) {
      const int o = static_cast<int>(scan_.states + k);
      const TensorInfo& slice = types_.types().outputs[detail::Index(o)];
      stacks_[k].Begin(slice, length);
      if (!HasOutput(o)) continue;
      const std::optional<Shape> whole = stacks_[k].WholeShape();
      if (whole && OutputAxis(k, whole->rank()) == 0)
        stacks_[k].UseMemory(*Output(o, *whole, slice.dtype));
    }
    return length;
  }
  void Iterate(int64_t i, int64_t length) {
    for (size_t k = 0; k < scan_.inputs; ++k) {
      const int64_t at = scan_.input_directions[k] == 0 ? i : length - 1 - i;
      const Shape& shape = scanned_[k].shape();
      body_.input(scan_.states + k) =
          scanned_[k]
              .Slice(0, at, at + 1)
              .View(Dims(shape.begin() + 1, detail::Index(shape.rank() - 1)));
    }
    const auto place = [&](size_t k) {
      return scan_.output_directions[k] == 0 ? i : length - 1 - i;
    };
    states_.PlaceOutputs();
    for (size_t k = 0; k < stacks_.size(); ++k)
      if (HasOutput(static_cast<int>(scan_.states + k)))
        body_.Place(scan_.states + k, stacks_[k].Place(place(k)));
    body_.Run(i);
    for (size_t k = 0; k < stacks_.size(); ++k)
      if (const size_t o = scan_.states + k; HasOutput(static_cast<int>(o)))
        stacks_[k].Add(place(k), body_.output(o), static_cast<int>(o));
    states_.TakeOver();
  }
  detail::InferredBody InferBodyTypes(const InferenceContext& c) const override {
    Dim length;
    return detail::InferScanBody(c, scan_, length);
  }

  const detail::ScanArguments scan_;
  detail::CarriedValues states_;
  std::vector<Tensor> scanned_;  // the scanned inputs, with the scanned axis first
  std::vector<detail::StackedOutput> stacks_;
  detail::IterationTypes types_;
};

namespace detail {

class ScanGradient final : public IterationGradient {
 public:
  using IterationGradient::IterationGradient;

 private:
  void Make() override {
    const ScanArguments scan = ScanArgumentsOf(Def());
    const ScanBackward back(scan, GivenGradients());
    if (back.backward().outputs().empty()) return;
    // The states before each iteration.
    std::vector<std::string> before, slices;
    if (!back.read_states().empty()) {
      OperatorDef again("Scan", Def().inputs(), {});
      for (size_t i = 0; i < scan.states; ++i) again.Output(Temporary("state"));
      for (size_t i = 0; i < back.read_states().size(); ++i)
        again.Output(before.emplace_back(Temporary("states")));
      for (const char* name :
           {"num_scan_inputs", "scan_input_axes", "scan_input_directions", "captures"})
        if (const Attribute* value = Def().args().Find(name)) again.Arg(name, *value);
      AddNode(std::move(again.Subgraph(kIteratedBody, MakeSubgraph(back.StackingBody()))));
    }
    for (size_t j = 0; j < scan.inputs; ++j) slices.push_back(I(static_cast<int>(scan.states + j)));
    AddBackwardScan(scan, back, 0, slices, before);
  }
};
OPKIT_REGISTER_GRADIENT(Scan, ScanGradient);

}  // namespace detail

OPKIT_STANDARD_OPERATOR(Scan, kMaker, ScanOp)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "initial_state_and_scan_inputs",
           "the states before the first iteration; then the tensors whose slices the iterations "
           "read; behind them the values that the body captures")
    .Output(0, "final_state_and_scan_outputs",
            "the states after the last iteration; then, for each further output of the body, its "
            "values in all iterations, stacked along a new axis")
    .Arg<int64_t>("num_scan_inputs", "the number of tensors that are read slice by slice")
    .Arg<std::vector<int64_t>>("scan_input_axes",
                               "for each scanned input the axis of the slices; by default 0")
    .Arg<std::vector<int64_t>>("scan_input_directions",
                               "for each scanned input 0, or 1 to read the slices backwards; by "
                               "default 0")
    .Arg<std::vector<int64_t>>("scan_output_axes",
                               "for each stacked output the place of its new axis; by default 0")
    .Arg<std::vector<int64_t>>("scan_output_directions",
                               "for each stacked output 0, or 1 to write the slices backwards; by "
                               "default 0")
    .Arg<std::vector<std::string>>("captures", "the names that the last inputs have in the body")
    .RunsSubgraphs()
    .Infer(detail::InferScan)
    .Cost([](auto&...) { return OpCost(); })
    .Doc(
        "Runs the subgraph `body` once for each slice of the scanned inputs, whose scanned axes "
        "have equal extents. The body's inputs are the states and one slice of each scanned "
        "input; captured values follow, by name. Its outputs are the new states and one slice of "
        "each stacked output. Without a slice, the states stay, and the stacked outputs are "
        "empty.");

}}  // namespace opkit

#endif  // OPKIT_OPS_LOOPS_SCAN_HPP_
