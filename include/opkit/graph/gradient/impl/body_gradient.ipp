// Builds the backward graph of a body and the Subgraph node that carries it.
#ifndef OPKIT_GRAPH_GRADIENT_IMPL_BODY_GRADIENT_IPP_
#define OPKIT_GRAPH_GRADIENT_IMPL_BODY_GRADIENT_IPP_

#include <algorithm>

#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The gradient maker of a node that runs a graph.
class BodyGradient final : public GradientMakerBase {
 public:
  BodyGradient(const Graph& body, const OperatorDef& def,
               const std::vector<GradientValue>& g_output)
      : GradientMakerBase(def, g_output), body_(body), backward_(body) {}
  bool CopyEngine() const override { return false; }
  bool CopyArguments() const override { return false; }
  std::vector<OperatorDef> GetGradientDefs() override {
    AddSeeds();
    std::vector<std::string> wanted;
    for (const Graph::Input& input : body_.inputs())
      if (input.info.dtype != DType::kBool && !IsInteger(input.info.dtype))
        wanted.push_back(input.name);
    if (seeds_.empty() || wanted.empty()) return {};
    GradientOptions options;
    options.seed = seeds_.front().second;
    options.more_seeds.assign(seeds_.begin() + 1, seeds_.end());
    options.allow_none = true;
    const GradientMap gradients = AddGradients(backward_, seeds_.front().first, wanted, options);
    for (const std::string& output : body_.outputs()) backward_.RemoveOutput(output);
    OperatorDef node("Subgraph");
    for (size_t i = 0; i < body_.inputs().size(); ++i)
      if (const auto found = gradients.find(body_.inputs()[i].name); found != gradients.end())
        GiveGradient(static_cast<int>(i), found->second, node);
    if (node.outputs().empty()) return {};
    RequireSubgraph();
    Graph pruned = WithoutUnreadInputs(RemoveDeadNodes(backward_), node);
    return {node.Subgraph("body", MakeSubgraph(std::move(pruned)))};
  }

 private:
  // Adds an input to the backward graph for each output of the node that has a gradient.
  void AddSeeds() {
    const GraphView view(body_);
    const GraphTypes types = InferGraph(view);
    outer_.reserve(body_.inputs().size() + body_.outputs().size());
    for (const std::string& name : Def().inputs()) outer_.push_back(name);
    for (size_t o = 0; o < body_.outputs().size(); ++o) {
      const GradientValue& given = GradOut(static_cast<int>(o));
      if (given.IsEmpty()) continue;
      const std::string& output = body_.outputs()[o];
      RequireDense(given, "output", Def().outputs()[o]);
      const std::string seed = backward_.FreshName(output + "_grad_given");
      const TensorInfo& info = types.Get(output);
      backward_.AddInput(seed, info.dtype, info.shape, info.device);
      outer_.push_back(given.dense);
      seeds_.emplace_back(output, seed);
    }
  }
  // Sets the gradient of input `input`: adds the value as an output of the backward graph and of
  // `node`. If the value is an input of the backward graph, uses the outer value instead.
  void GiveGradient(int input, const GradientValue& gradient, OperatorDef& node) {
    if (gradient.IsEmpty()) return;
    RequireDense(gradient, "the graph's input", body_.inputs()[Index(input)].name);
    for (size_t i = 0; i < backward_.inputs().size(); ++i)
      if (backward_.inputs()[i].name == gradient.dense) return SetDense(input, outer_[i]);
    if (backward_.IsOutput(gradient.dense)) {
      const auto& outputs = backward_.outputs();
      const auto at = std::ranges::find(outputs, gradient.dense) - outputs.begin();
      return SetDense(input, node.outputs()[Index(at)]);
    }
    backward_.AddOutput(gradient.dense);
    node.Output(GI(input));
  }
  // Returns the graph without the inputs that no node reads. Adds the outer value of each remaining
  // input as an input of `node`.
  Graph WithoutUnreadInputs(const Graph& graph, OperatorDef& node) const {
    NameIndex read;
    for (const OperatorDef& def : graph.nodes())
      for (const std::string& input : def.inputs()) read.Add(input);
    Graph out;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const Graph::Input& input = graph.inputs()[i];
      if (read.Find(input.name) < 0) continue;
      out.AddInput(input);
      node.Input(outer_[i]);
    }
    for (const Graph::Constant& constant : graph.constants())
      out.AddConstant(constant.name, constant.value);
    for (const OperatorDef& def : graph.nodes()) out.AddNode(def);
    for (const std::string& output : graph.outputs()) out.AddOutput(output);
    return out;
  }
  static void RequireDense(const GradientValue& gradient, const char* what,
                           const std::string& name) {
    if (gradient.IsSparse())
      Throw(ErrorCode::kUnsupported, "the gradient of ", what, " '", name, "' is ",
            ToString(gradient), ", which is sparse; a graph's gradients are dense");
  }
  static void RequireSubgraph() {
    if (!OpRegistry::Global().FindSchema("Subgraph"))
      Throw(ErrorCode::kNotFound,
            "the gradient of a node that runs a graph is a node of operator Subgraph, which is not "
            "in this program: include opkit/ops/subgraph.hpp, or link opkit::ops");
  }

  const Graph& body_;
  Graph backward_;
  std::vector<std::string> outer_;  // by input of backward_: the value of the outer graph
  std::vector<std::pair<std::string, std::string>> seeds_;  // outputs with their gradients' names
};

OPKIT_INLINE bool MakeBodyGradient(const Graph& body, const OperatorDef& def,
                                   const std::vector<GradientValue>& g_output, GradientNames& names,
                                   GradientOpsMeta& meta) {
  if (def.inputs().size() != body.inputs().size() || def.outputs().size() != body.outputs().size())
    return false;
  BodyGradient maker(body, def, g_output);
  meta = RunGradientMaker(maker, def, names);
  return true;
}

OPKIT_INLINE void UseGradientsOfGraphSubgraphs() { g_make_graph_gradient.Fill(&MakeBodyGradient); }
#ifdef OPKIT_COMPILED
[[maybe_unused]] static const bool kDifferentiatesGraphSubgraphs =
    (UseGradientsOfGraphSubgraphs(), true);
#endif

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_GRADIENT_IMPL_BODY_GRADIENT_IPP_
