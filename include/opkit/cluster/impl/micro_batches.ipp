// Definitions of MicroBatches: copies of the nodes that depend on a batched input.
#ifndef OPKIT_CLUSTER_IMPL_MICRO_BATCHES_IPP_
#define OPKIT_CLUSTER_IMPL_MICRO_BATCHES_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/cluster/micro_batches.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

class MicroBatchMaker {
 public:
  MicroBatchMaker(const Graph& graph, int count, const MicroBatchOptions& options)
      : graph_(graph), options_(options), count_(count) {
    CheckArguments();
    FindCopied();
  }

  Graph Make() {
    AddInputs();
    for (const Graph::Constant& constant : graph_.constants())
      out_.AddConstantInLayout(constant.name, constant.value);
    for (const int node : view_.order())
      if (!copied_[node]) out_.AddNode(graph_.node(node));
    for (const bool is_gradient : {false, true})
      for (int k = 0; k < count_; ++k) AddCopies(k, is_gradient);
    for (const std::string& output : graph_.outputs()) AddOutput(output);
    return std::move(out_);
  }

 private:
  void CheckArguments() const {
    if (count_ < 1)
      Throw(ErrorCode::kInvalidArgument, "there are ", count_,
            " micro-batches, expected 1 or more");
    for (const std::string& name : options_.batched) {
      const Graph::Input* input = graph_.FindInput(name);
      if (!input)
        Throw(ErrorCode::kNotFound, "MicroBatchOptions::batched names '", name,
              "', which is no input of the graph");
      if (!input->info.shape.has_rank() || input->info.shape.rank() == 0)
        Throw(ErrorCode::kInvalidArgument, "the batched input '", name, "' is ",
              ToString(input->info), ", expected rank 1 or more");
      if (input->has_default())
        Throw(ErrorCode::kUnsupported, "the batched input '", name,
              "' has a default, which is for one micro-batch");
    }
    for (const auto* list : {&options_.summed, &options_.averaged})
      for (const std::string& name : *list)
        if (!graph_.IsOutput(name))
          Throw(ErrorCode::kNotFound, "MicroBatchOptions names '", name,
                "', which is no output of the graph");
    for (const std::string& name : options_.summed)
      if (Contains(options_.averaged, name))
        Throw(ErrorCode::kInvalidArgument, "the output '", name,
              "' is in both lists of MicroBatchOptions, summed and averaged");
    for (const OperatorDef& def : graph_.nodes())
      if (IsCommunication(def))
        Throw(ErrorCode::kUnsupported, "the node ", def,
              " communicates; add it to the graph that MicroBatches returns");
    if (!view_.rewrites().empty())
      Throw(ErrorCode::kUnsupported, "the node ", graph_.node(view_.rewrites()[0].node),
            " rewrites the value '", view_.name(view_.rewrites()[0].value),
            "', which all micro-batches would share");
  }
  // A node that depends on a batched input, or has an effect, is copied for each micro-batch.
  void FindCopied() {
    for (const std::string& name : options_.batched) varies_[view_.FindValue(name)] = 1;
    for (const int node : view_.order()) {
      copied_[node] = HasEffect(graph_.node(node));
      for (const int input : view_.inputs(node)) copied_[node] |= input >= 0 && varies_[input];
      if (!copied_[node]) continue;
      for (const int output : view_.outputs(node))
        if (output >= 0) varies_[output] = 1;
    }
  }

  // Returns the name of the value in a micro-batch.
  std::string NameIn(const std::string& value, int k) const {
    const int number = view_.FindValue(value);
    return number >= 0 && varies_[number] ? graph_.FreshName(StrCat(value, "/", k)) : value;
  }
  void AddInputs() {
    for (const Graph::Input& input : graph_.inputs()) {
      if (!Contains(options_.batched, input.name)) {
        out_.AddInput(input);
        continue;
      }
      Graph::Input whole = input;
      const Dim rows = input.info.shape.dim(0);
      whole.info.shape[0] = rows.is_known() ? Dim(rows.value() * count_) : Dim();
      out_.AddInput(std::move(whole));
      OperatorDef split("Split");
      split.Name(StrCat("micro-batches of ", input.name)).Input(input.name).Arg("axis", 0);
      // With num_outputs the last part could have fewer rows; without it that is an Error of the
      // run. ONNX wants the attribute where it can be given.
      if (rows.is_known()) split.Arg("num_outputs", int64_t{count_});
      for (int k = 0; k < count_; ++k) split.Output(NameIn(input.name, k));
      out_.AddNode(std::move(split));
    }
  }
  void AddCopies(int k, bool is_gradient) {
    for (const int node : view_.order()) {
      if (!copied_[node] || graph_.node(node).is_gradient_op() != is_gradient) continue;
      OperatorDef def = graph_.node(node);
      for (std::string& input : def.mutable_inputs()) input = NameIn(input, k);
      for (std::string& output : def.mutable_outputs()) output = NameIn(output, k);
      if (!def.name().empty()) def.Name(StrCat(def.name(), "/", k));
      for (std::string& control : def.mutable_control_inputs())
        if (IsCopied(control)) control = StrCat(control, "/", k);
      out_.AddNode(std::move(def));
      for (const std::string& output : graph_.node(node).outputs())
        if (IsReduced(output)) AddTo(output, k);
    }
  }
  bool IsCopied(const std::string& name) const {
    for (int node = 0; node < graph_.num_nodes(); ++node)
      if (graph_.node(node).name() == name) return copied_[node] != 0;
    return false;
  }
  bool IsReduced(const std::string& output) const {
    return Contains(options_.summed, output) || Contains(options_.averaged, output);
  }
  // Returns a node that runs where and when the output is made.
  OperatorDef NodeBeside(const std::string& output, std::string type) const {
    OperatorDef def(std::move(type));
    if (const int producer = graph_.Producer(output); producer >= 0)
      def.Process(graph_.node(producer).process())
          .IsGradientOp(graph_.node(producer).is_gradient_op());
    return def;
  }
  // Returns the name of the sum of the micro-batches 0 to k.
  std::string SumName(const std::string& output, int k) const {
    if (k == 0) return NameIn(output, 0);
    const bool is_result = k == count_ - 1 && Contains(options_.summed, output);
    return is_result ? output : graph_.FreshName(StrCat(output, "/sum ", k));
  }
  void AddTo(const std::string& output, int k) {
    if (k == 0) return;
    out_.AddNode(NodeBeside(output, "Add")
                     .Input(SumName(output, k - 1))
                     .Input(NameIn(output, k))
                     .Output(SumName(output, k)));
  }
  // Returns the number of micro-batches in the dtype of an averaged output.
  Tensor Count(const std::string& output) const {
    Tensor count(Shape(), types_.Get(output).dtype);
    const bool is_float = FloatTypes::Visit(count.dtype(), [&]<class T>() {
      *count.mutable_data<T>() = static_cast<T>(static_cast<float>(count_));
    });
    if (!is_float)
      Throw(ErrorCode::kInvalidArgument, "the averaged output '", output, "' is ",
            ToString(types_.Get(output)), ", expected floating-point numbers");
    return count;
  }
  void AddOutput(const std::string& output) {
    const int value = view_.FindValue(output);
    const bool is_made = varies_[value] && graph_.Producer(output) >= 0;
    if (is_made && Contains(options_.averaged, output)) {
      const std::string count = out_.FreshName(output + "/count");
      out_.AddConstant(count, Count(output));
      out_.AddNode(
          NodeBeside(output, "Div").Input(SumName(output, count_ - 1)).Input(count).Output(output));
    } else if (is_made && Contains(options_.summed, output)) {
      if (count_ == 1)
        out_.AddNode(NodeBeside(output, "Identity").Input(NameIn(output, 0)).Output(output));
    } else if (is_made) {
      const TensorInfo& info = types_.Get(output);
      if (info.shape.has_rank() && info.shape.rank() == 0)
        Throw(ErrorCode::kInvalidArgument, "the output '", output,
              "' is a scalar; name it in MicroBatchOptions::summed or averaged");
      OperatorDef concat = NodeBeside(output, "Concat");
      for (int k = 0; k < count_; ++k) concat.Input(NameIn(output, k));
      out_.AddNode(std::move(concat.Output(output).Arg("axis", int64_t{0})));
    } else if (IsReduced(output)) {
      Throw(ErrorCode::kInvalidArgument, "the output '", output,
            "' depends on no batched input; take it out of the lists of MicroBatchOptions");
    }
    out_.AddOutput(output);
  }

  const Graph& graph_;
  const MicroBatchOptions& options_;
  const int count_;
  const GraphView view_{graph_};
  const GraphTypes types_ = InferGraph(view_);
  IndexedVector<char> varies_ = IndexedVector<char>(Index(view_.num_values()), 0);  // by value
  IndexedVector<char> copied_ = IndexedVector<char>(Index(graph_.num_nodes()), 0);  // by node
  Graph out_;
};

}  // namespace detail

OPKIT_INLINE Graph MicroBatches(const Graph& graph, int count, const MicroBatchOptions& options) {
  return detail::MicroBatchMaker(graph, count, options).Make();
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_MICRO_BATCHES_IPP_
