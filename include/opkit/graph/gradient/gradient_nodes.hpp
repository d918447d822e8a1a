// What AddGradients makes of a graph: the graph with gradient nodes behind its own, named, summed
// up and thinned out to what is needed.
#ifndef OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_
#define OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_

#include <map>

#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit::inline OPKIT_ABI {

// By the name of the value.
using GradientMap = std::map<std::string, GradientValue>;

namespace detail {

template <class Names, class Graph, class GradientValue>
class GradientNodes {
  using OperatorDef = typename Graph::Def;

 public:
  explicit GradientNodes(const Graph& graph) : graph_(graph), num_before_(graph.num_nodes()) {
    for (const auto& input : graph.inputs()) names_.Reserve(input.name);
    for (const auto& constant : graph.constants()) names_.Reserve(constant.name);
    for (const OperatorDef& def : graph.nodes())
      for (const std::string& name : def.outputs())
        if (!name.empty()) names_.Reserve(name);
  }

  Names& names() { return names_; }
  const Graph& graph() const { return graph_; }
  Graph TakeGraph() { return std::move(graph_); }
  // For each node added: the node whose gradient it computes; num_before() for sums.
  const std::vector<int>& origins() const { return origins_; }
  int num_before() const { return num_before_; }

  // A constant of ones, as the gradient of the value `name`.
  GradientValue AddOnes(const std::string& name, Shape shape, DType dtype) {
    Tensor ones(std::move(shape), dtype);
    DispatchDType<float16, bfloat16, float, double>(dtype, [&]<class T>() {
      T* data = ones.mutable_data<T>();
      for (int64_t i = 0; i < ones.numel(); ++i) data[i] = static_cast<T>(1.f);
    });
    ones_ = names_.Of(name);
    graph_.AddConstant(ones_, std::move(ones));
    return ones_;
  }

  // Makers call the gradient of a value the same wherever it is used, so what was made before gets
  // another name here. That also takes gradients out of place that a maker computes in place:
  // others may share them.
  void Add(int node, GradientOpsMeta& meta) {
    std::vector<std::string> made, from, to;
    auto renamed = [&](std::string& name) {
      for (size_t i = 0; i < from.size(); ++i)
        if (from[i] == name) return void(name = to[i]);
    };
    auto is_made = [&](const std::string& name) {
      for (const std::string& known : made)
        if (known == name) return true;
      return false;
    };
    for (OperatorDef& op : meta.ops) {
      for (std::string& input : op.mutable_inputs()) renamed(input);
      for (std::string& output : op.mutable_outputs()) {
        if (output.empty()) continue;
        renamed(output);
        if (is_made(output)) continue;
        if (graph_.HasValue(output)) {
          const std::string* value = names_.ValueOf(output);
          from.push_back(output);
          to.push_back(names_.Fresh(value ? std::string(*value) : output));
          output = to.back();
        }
        made.push_back(output);
      }
      const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
      if (std::string why = schema.Verify(op); !why.empty())
        Throw(ErrorCode::kInvalidArgument, why, "; in gradient node ", ToString(op));
      ForEachRewritten(op, [&](const std::string& input) {
        if (!is_made(input))
          Throw(ErrorCode::kUnsupported, "gradient node ", ToString(op), " writes to '", input,
                "', which others may read");
      });
      AddNode(std::move(op), node);
    }
    for (GradientValue& value : meta.g_input)
      for (std::string* part : {&value.dense, &value.indices, &value.values}) renamed(*part);
  }

  // Adds up the gradients of the value `name`: all at once, or pair by pair.
  GradientValue Sum(const std::string& name, const std::vector<GradientValue>& list,
                    const std::string& type) {
    OperatorDef sum(type);
    for (const GradientValue& gradient : list) {
      if (gradient.IsSparse())
        Throw(ErrorCode::kUnsupported, "value '", name, "' has ", list.size(),
              " gradients, of which ", ToString(gradient),
              " is sparse: only dense ones can be added up; let one node alone read the value, or "
              "make that gradient dense");
      sum.Input(gradient.dense);
    }
    const OpSchema* schema = OpRegistry::Global().FindSchema(sum.type());
    if (!schema)
      Throw(ErrorCode::kNotFound, "value '", name, "' is used ", list.size(),
            " times, and its gradients are added up by operator '", sum.type(),
            "', which is not registered; register it, or name another in "
            "GradientOptions::sum_operator");
    const int first = graph_.Producer(list.front().dense);
    if (first >= 0) sum.Device(graph_.node(first).device());
    sum.IsGradientOp(true);
    const bool takes_all = schema->Verify(OperatorDef(sum).Output("all")).empty();
    const std::vector<std::string> parts = sum.inputs();
    std::string total = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      if (!takes_all) sum.mutable_inputs() = {total, parts[i]};
      total = names_.Fresh(name, "_grad_sum");
      sum.mutable_outputs() = {total};
      if (std::string why = schema->Verify(sum); !why.empty())
        Throw(ErrorCode::kInvalidArgument, "operator '", sum.type(),
              "' cannot add up the gradients of '", name, "': ", why);
      AddNode(sum, num_before_);
      if (takes_all) break;
    }
    return total;
  }

  // Nodes whose results nothing needs: gradients of values that nobody asked for.
  void Prune(const GradientMap& found) {
    NameIndex needed;
    for (const auto& [name, value] : found)
      for (const std::string* part : {&value.dense, &value.indices, &value.values})
        needed.Add(*part);
    std::vector<char> removed(static_cast<size_t>(graph_.num_nodes()), 0);
    for (int i = graph_.num_nodes(); i-- > num_before_;) {
      bool keep = HasEffect(graph_.node(i));
      for (const std::string& output : graph_.node(i).outputs())
        keep |= !output.empty() && needed.Find(output) >= 0;
      ForEachRewritten(graph_.node(i),
                       [&](const std::string& input) { keep |= needed.Find(input) >= 0; });
      removed[static_cast<size_t>(i)] = !keep;
      if (keep)
        for (const std::string& input : graph_.node(i).inputs()) needed.Add(input);
    }
    std::vector<int> origins;
    for (size_t i = 0; i < origins_.size(); ++i)
      if (!removed[i + static_cast<size_t>(num_before_)]) origins.push_back(origins_[i]);
    origins_ = std::move(origins);
    graph_.RemoveNodes(removed);
    if (!ones_.empty() && needed.Find(ones_) < 0) graph_.RemoveConstant(ones_);
  }

 private:
  void AddNode(OperatorDef def, int node) {
    graph_.AddNode(std::move(def));
    origins_.push_back(node);
  }

  Graph graph_;
  const int num_before_;
  Names names_;
  std::string ones_;
  std::vector<int> origins_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_
