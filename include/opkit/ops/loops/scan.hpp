// Scan: runs the graph "body" of its node once for each slice of its inputs. Its gradient is a Scan
// that runs the iterations backwards.
#ifndef OPKIT_OPS_LOOPS_SCAN_HPP_
#define OPKIT_OPS_LOOPS_SCAN_HPP_

#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/ops/loops/body_iterations.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The arguments of a Scan node. The lists have one entry for each scanned input or stacked output;
// axes may be negative.
struct ScanArguments {
  IteratedBody body;
  size_t states = 0, inputs = 0, outputs = 0;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

// Returns a list of `count` axes or directions; zeros if the node has none. Throws kInvalidArgument
// for a list of another length.
inline std::vector<int64_t> ScanList(const OperatorDef& def, const char* name, size_t count) {
  auto list = def.args().Get<std::vector<int64_t>>(name, {});
  if (list.empty()) list.assign(count, 0);
  if (list.size() != count)
    Throw(ErrorCode::kInvalidArgument, "Scan: '", name, "' has ", list.size(),
          " entries, expected ", count);
  return list;
}
inline std::vector<int64_t> ScanDirections(const OperatorDef& def, const char* name, size_t count) {
  std::vector<int64_t> list = ScanList(def, name, count);
  for (const int64_t direction : list)
    if (direction != 0 && direction != 1)
      Throw(ErrorCode::kInvalidArgument, "Scan: '", name, "' has ", direction,
            ", expected 0 (forward) or 1 (backward)");
  return list;
}
// Throws kInvalidArgument if the node's arguments do not fit each other or the body.
inline ScanArguments ScanArgumentsOf(const OperatorDef& def) {
  ScanArguments found;
  const auto scanned = def.args().Get<int64_t>("num_scan_inputs", 0);
  const int64_t own = static_cast<int64_t>(def.inputs().size()) - CountCaptures(def);
  if (scanned < 1 || scanned > own)
    Throw(ErrorCode::kInvalidArgument, "Scan: 'num_scan_inputs' is ", scanned,
          ", expected 1 to the number of inputs that are no captured values, ", own);
  found.body = IteratedBodyOf(def, static_cast<int>(own), def.outputs().size());
  found.inputs = static_cast<size_t>(scanned);
  found.states = static_cast<size_t>(own - scanned);
  if (def.outputs().size() < found.states)
    Throw(ErrorCode::kInvalidArgument, "Scan: the node has ", found.states, " states, but ",
          def.outputs().size(), " outputs");
  found.outputs = def.outputs().size() - found.states;
  found.input_axes = ScanList(def, "scan_input_axes", found.inputs);
  found.input_directions = ScanDirections(def, "scan_input_directions", found.inputs);
  found.output_axes = ScanList(def, "scan_output_axes", found.outputs);
  found.output_directions = ScanDirections(def, "scan_output_directions", found.outputs);
  return found;
}
// Returns an axis of the list as a number from 0 to rank - 1. Throws kOutOfRange.
inline int ScanAxis(int64_t axis, int rank, const char* name) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, "Scan: '", name, "' has the axis ", axis, ", expected ", -rank,
          " to ", rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

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

// Builds the two graphs of Scan's gradient from the body. The first body runs the iterations again
// and stacks the states that the second body needs. The second body runs the iterations backwards:
// it computes an iteration again, then the gradients of its states, slices and captured values from
// those of its outputs. The gradients of captured values are summed over the iterations.
class ScanBackward {
 public:
  // `has_gradient[o]` is true if output o of the node has a gradient. The states before the first
  // iteration may get one from any output, so that all of those that may be floats are carried.
  ScanBackward(const ScanArguments& scan, const std::vector<char>& has_gradient)
      : scan_(scan), body_(*scan.body.graph), graph_(body_) {
    AddSeeds(has_gradient);
    FindGradients();
    if (!seeds_.empty()) MakeBackward();
  }
  // Return the states, slices and captures (their inputs in the body) that have a gradient; in the
  // second body they are carried, stacked, and carried behind the states.
  const std::vector<size_t>& states() const { return float_states_; }
  const std::vector<size_t>& slices() const { return slices_; }
  const std::vector<size_t>& captures() const { return captures_; }
  // Return what the second body reads: slices of scanned inputs, states that the first body stacks,
  // gradients of stacked outputs, and captured values.
  const std::vector<size_t>& read_slices() const { return read_slices_; }
  const std::vector<size_t>& read_states() const { return read_states_; }
  const std::vector<size_t>& read_stacks() const { return stacks_; }
  const std::vector<size_t>& read_captures() const { return read_captures_; }
  const Graph& backward() const { return backward_; }

  // Returns the first body: its outputs are the states, then those of read_states() before the
  // iteration.
  Graph StackingBody() const {
    Graph graph = body_;
    for (size_t k = 0; k < scan_.outputs; ++k)
      graph.RemoveOutput(body_.outputs()[scan_.states + k]);
    for (const size_t i : read_states_) {
      std::string before = graph.FreshName(NameOf(i) + "_before");
      graph.AddNode(OperatorDef("Identity", {NameOf(i)}, {before}));
      graph.AddOutput(std::move(before));
    }
    return RemoveDeadNodes(graph);
  }

 private:
  const std::string& NameOf(size_t input) const { return body_.inputs()[input].name; }
  bool MayBeFloat(size_t input) const {
    const DType dtype = body_.inputs()[input].info.dtype;
    return dtype != DType::kBool && !IsInteger(dtype);
  }
  std::string AddInputLike(const Graph::Input& like, const std::string& hint) {
    std::string name = graph_.FreshName(hint);
    graph_.AddInput(name, like.info.dtype, like.info.shape);
    return name;
  }
  // Adds an input for the gradient of each output that may have one.
  void AddSeeds(const std::vector<char>& has_gradient) {
    const auto seed = [&](size_t output, std::string given) {
      std::string copy = graph_.FreshName(body_.outputs()[output] + "_made");
      graph_.AddNode(OperatorDef("Identity", {body_.outputs()[output]}, {copy}));
      seeds_.emplace_back(std::move(copy), std::move(given));
    };
    for (size_t i = 0; i < scan_.states; ++i)
      if (MayBeFloat(i)) {
        float_states_.push_back(i);
        given_.push_back(AddInputLike(body_.inputs()[i], NameOf(i) + "_grad_given"));
        seed(i, given_.back());
      }
    for (size_t k = 0; k < scan_.outputs; ++k)
      if (const size_t o = scan_.states + k; has_gradient[o]) {
        stacks_.push_back(k);
        std::string name = graph_.FreshName(body_.outputs()[o] + "_grad_given");
        graph_.AddInput(name, DType::kUndefined, {});
        stack_seeds_.push_back(name);
        seed(o, std::move(name));
      }
  }
  void FindGradients() {
    std::vector<std::string> wanted;
    for (size_t i = 0; i < body_.inputs().size(); ++i)
      if (MayBeFloat(i)) wanted.push_back(NameOf(i));
    if (seeds_.empty() || wanted.empty()) return seeds_.clear();
    GradientOptions options;
    options.seed = seeds_.front().second;
    options.more_seeds.assign(seeds_.begin() + 1, seeds_.end());
    options.allow_none = true;
    gradients_ = AddGradients(graph_, seeds_.front().first, wanted, options);
  }
  // Returns the value with the gradient of an input of the body; empty if it has none.
  std::string GradientOf(size_t input) const {
    const auto found = gradients_.find(NameOf(input));
    if (found == gradients_.end() || found->second.IsEmpty()) return {};
    if (found->second.IsSparse())
      Throw(ErrorCode::kUnsupported, "Scan: the gradient of the body's input '", NameOf(input),
            "' is sparse; the gradients of a body are dense");
    return found->second.dense;
  }
  void Return(const char* op, const std::vector<std::string>& inputs) {
    std::string name = graph_.FreshName("grad_out");
    graph_.AddNode(OperatorDef(op, inputs, {name}));
    graph_.AddOutput(std::move(name));
  }
  void MakeBackward() {
    for (const std::string& output : body_.outputs()) graph_.RemoveOutput(output);
    std::vector<std::string> carried = given_;
    for (const size_t i : float_states_)
      if (const std::string gradient = GradientOf(i); gradient.empty())
        Return("ZerosLike", {NameOf(i)});
      else
        Return("Identity", {gradient});
    for (size_t i = scan_.body.own; i < body_.inputs().size(); ++i)
      if (const std::string gradient = GradientOf(i); !gradient.empty()) {
        captures_.push_back(i);
        carried.push_back(AddInputLike(body_.inputs()[i], NameOf(i) + "_grad_sum"));
        Return("Add", {carried.back(), gradient});
      }
    for (size_t j = 0; j < scan_.inputs; ++j)
      if (const std::string gradient = GradientOf(scan_.states + j); !gradient.empty()) {
        slices_.push_back(j);
        Return("Identity", {gradient});
      }
    const Graph pruned = RemoveDeadNodes(graph_);
    NameIndex read;
    for (const OperatorDef& def : pruned.nodes())
      for (const std::string& input : def.inputs()) read.Add(input);
    std::vector<std::string> order = carried;
    const auto take = [&](size_t input, size_t number, std::vector<size_t>& list) {
      if (read.Find(NameOf(input)) < 0) return;
      list.push_back(number);
      order.push_back(NameOf(input));
    };
    for (size_t j = 0; j < scan_.inputs; ++j) take(scan_.states + j, j, read_slices_);
    for (size_t i = 0; i < scan_.states; ++i) take(i, i, read_states_);
    if (read_slices_.empty() && read_states_.empty() && stacks_.empty()) {
      read_slices_.push_back(0);  // a Scan has at least one scanned input
      order.push_back(NameOf(scan_.states));
    }
    order.insert(order.end(), stack_seeds_.begin(), stack_seeds_.end());
    for (size_t i = scan_.body.own; i < body_.inputs().size(); ++i) take(i, i, read_captures_);
    for (const std::string& name : order) backward_.AddInput(*pruned.FindInput(name));
    for (const Graph::Constant& constant : pruned.constants())
      backward_.AddConstant(constant.name, constant.value);
    for (const OperatorDef& def : pruned.nodes()) backward_.AddNode(def);
    for (const std::string& output : pruned.outputs()) backward_.AddOutput(output);
  }

  const ScanArguments& scan_;
  const Graph& body_;
  Graph graph_;  // the body, its gradient nodes, and inputs for the gradients of its outputs
  Graph backward_;
  GradientMap gradients_;
  std::vector<std::pair<std::string, std::string>> seeds_;  // outputs and their gradients
  std::vector<std::string> given_, stack_seeds_;
  std::vector<size_t> float_states_, slices_, captures_;
  std::vector<size_t> read_slices_, read_states_, stacks_, read_captures_;
};

}  // namespace detail

OPKIT_NODE_GRADIENT(Scan) {
  const detail::ScanArguments scan = detail::ScanArgumentsOf(Def());
  std::vector<char> has_gradient;
  for (size_t o = 0; o < Def().outputs().size(); ++o) {
    const GradientValue& given = GradOut(static_cast<int>(o));
    if (given.IsSparse())
      Throw(ErrorCode::kUnsupported, "the gradient of output ", o, " is sparse; Scan's are dense");
    has_gradient.push_back(given.IsEmpty() ? 0 : 1);
  }
  const detail::ScanBackward back(scan, has_gradient);
  const auto input = [](size_t i) { return static_cast<int>(i); };
  const auto captured = [&](size_t body_input) {
    return scan.body.captures[body_input - scan.body.own];
  };
  const std::vector<size_t>&states = back.states(), &stacks = back.read_stacks();
  if (back.backward().outputs().empty()) return;
  // The states before each iteration.
  std::vector<std::string> before;
  if (!back.read_states().empty()) {
    OperatorDef again("Scan", Def().inputs(), {});
    for (size_t i = 0; i < scan.states; ++i) again.Output(Temporary("state"));
    for (size_t i = 0; i < back.read_states().size(); ++i)
      again.Output(before.emplace_back(Temporary("states")));
    for (const char* name :
         {"num_scan_inputs", "scan_input_axes", "scan_input_directions", "captures"})
      if (const Attribute* value = Def().args().Find(name)) again.Arg(name, *value);
    AddNode(std::move(again.Subgraph(detail::kIteratedBody, MakeSubgraph(back.StackingBody()))));
  }
  OperatorDef scan_back("Scan");
  for (const size_t i : states)
    scan_back.Input(has_gradient[i] ? GO(input(i)) : Node("ZerosLike", {I(input(i))}));
  for (const size_t i : back.captures()) scan_back.Input(Node("ZerosLike", {I(captured(i))}));
  std::vector<int64_t> axes, directions, output_axes, output_directions;
  for (const size_t j : back.read_slices()) {
    scan_back.Input(I(input(scan.states + j)));
    axes.push_back(scan.input_axes[j]);
    directions.push_back(1 - scan.input_directions[j]);
  }
  for (const std::string& name : before) {
    scan_back.Input(name);
    axes.push_back(0);
    directions.push_back(1);
  }
  for (const size_t k : stacks) {
    scan_back.Input(GO(input(scan.states + k)));
    axes.push_back(scan.output_axes[k]);
    directions.push_back(1 - scan.output_directions[k]);
  }
  std::vector<std::string> captures;
  for (const size_t i : back.read_captures()) {
    scan_back.Input(I(captured(i)));
    captures.push_back(scan.body.graph->inputs()[i].name);
  }
  for (const size_t i : states) scan_back.Output(GI(input(i)));
  for (const size_t i : back.captures()) scan_back.Output(GI(captured(i)));
  for (const size_t j : back.slices()) {
    scan_back.Output(GI(input(scan.states + j)));
    output_axes.push_back(scan.input_axes[j]);
    output_directions.push_back(1 - scan.input_directions[j]);
  }
  scan_back.Arg("num_scan_inputs", static_cast<int64_t>(axes.size()))
      .Arg("scan_input_axes", axes)
      .Arg("scan_input_directions", directions)
      .Arg("scan_output_axes", output_axes)
      .Arg("scan_output_directions", output_directions)
      .Arg("captures", captures);
  AddNode(std::move(scan_back.Subgraph(detail::kIteratedBody, MakeSubgraph(back.backward()))));
}

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
