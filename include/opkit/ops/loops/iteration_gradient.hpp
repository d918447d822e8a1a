// ScanBackward and IterationGradient: the gradients of Loop and Scan, a Scan that runs the
// iterations backwards.
#ifndef OPKIT_OPS_LOOPS_ITERATION_GRADIENT_HPP_
#define OPKIT_OPS_LOOPS_ITERATION_GRADIENT_HPP_

#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/ops/loops/scan_arguments.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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
    std::vector<std::string> before;
    for (const size_t i : read_states_) before.push_back(NameOf(i));
    return Stacking(body_, scan_.states, before);
  }
  // Returns a body with its first `outputs` outputs, and copies of some of its inputs behind them.
  static Graph Stacking(const Graph& body, size_t outputs, const std::vector<std::string>& inputs) {
    Graph graph = body;
    for (size_t o = outputs; o < body.outputs().size(); ++o) graph.RemoveOutput(body.outputs()[o]);
    for (const std::string& input : inputs) {
      std::string before = graph.FreshName(input + "_before");
      graph.AddNode(OperatorDef("Identity", {input}, {before}));
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

// The base of the gradients of Scan and Loop.
class IterationGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 protected:
  // Returns for each output 1 if it has a gradient. Throws kUnsupported for a sparse one.
  std::vector<char> GivenGradients() const {
    std::vector<char> given;
    for (size_t o = 0; o < Def().outputs().size(); ++o) {
      const GradientValue& gradient = GradOut(static_cast<int>(o));
      if (gradient.IsSparse())
        Throw(ErrorCode::kUnsupported, "the gradient of output ", o, " is sparse; those of ",
              Def().type(), " are dense");
      given.push_back(gradient.IsEmpty() ? 0 : 1);
    }
    return given;
  }
  // Adds the Scan that runs the iterations backwards. `first` is the input of the node with the
  // first state. `slices` are the scanned values, and `before` the stacked states that `back`
  // reads.
  void AddBackwardScan(const ScanArguments& scan, const ScanBackward& back, int first,
                       const std::vector<std::string>& slices,
                       const std::vector<std::string>& before) {
    const std::vector<char> given = GivenGradients();
    const auto captured = [&](size_t body_input) {
      return scan.body.captures[body_input - scan.body.own];
    };
    const auto number = [](size_t i) { return static_cast<int>(i); };
    OperatorDef node("Scan");
    for (const size_t i : back.states())
      node.Input(given[i] ? GO(number(i)) : Node("ZerosLike", {I(first + number(i))}));
    for (const size_t i : back.captures()) node.Input(Node("ZerosLike", {I(captured(i))}));
    std::vector<int64_t> axes, directions, output_axes, output_directions;
    for (const size_t j : back.read_slices()) {
      node.Input(slices[j]);
      axes.push_back(scan.input_axes[j]);
      directions.push_back(1 - scan.input_directions[j]);
    }
    for (const std::string& name : before) {
      node.Input(name);
      axes.push_back(0);
      directions.push_back(1);
    }
    for (const size_t k : back.read_stacks()) {
      node.Input(GO(number(scan.states + k)));
      axes.push_back(scan.output_axes[k]);
      directions.push_back(1 - scan.output_directions[k]);
    }
    std::vector<std::string> captures;
    for (const size_t i : back.read_captures()) {
      node.Input(I(captured(i)));
      captures.push_back(scan.body.graph->inputs()[i].name);
    }
    for (const size_t i : back.states()) node.Output(GI(first + number(i)));
    for (const size_t i : back.captures()) node.Output(GI(captured(i)));
    for (const size_t j : back.slices()) {
      node.Output(GI(first + number(scan.states + j)));
      output_axes.push_back(scan.input_axes[j]);
      output_directions.push_back(1 - scan.input_directions[j]);
    }
    node.Arg("num_scan_inputs", static_cast<int64_t>(axes.size()))
        .Arg("scan_input_axes", axes)
        .Arg("scan_input_directions", directions)
        .Arg("scan_output_axes", output_axes)
        .Arg("scan_output_directions", output_directions)
        .Arg("captures", captures);
    AddNode(std::move(node.Subgraph(kIteratedBody, MakeSubgraph(back.backward()))));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_LOOPS_ITERATION_GRADIENT_HPP_
