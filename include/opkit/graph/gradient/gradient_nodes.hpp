// GradientNodes: builds the graph of AddGradients. Adds gradient nodes behind the graph's own
// nodes, names and sums gradients, and removes the nodes that no wanted gradient needs. Only files
// with definitions include this header.
#ifndef OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_
#define OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_

#include <map>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A copy of a graph to which gradient nodes are added.
class GradientNodes {
 public:
  explicit GradientNodes(const Graph& graph) : graph_(graph), num_before_(graph.num_nodes()) {
    for (const Graph::Input& input : graph.inputs()) names_.Reserve(input.name);
    for (const Graph::Constant& constant : graph.constants()) names_.Reserve(constant.name);
    for (const OperatorDef& def : graph.nodes())
      for (const std::string& name : def.outputs())
        if (!name.empty()) names_.Reserve(name);
  }

  GradientNames& names() { return names_; }
  const Graph& graph() const { return graph_; }
  Graph TakeGraph() { return std::move(graph_); }
  // Returns, for each added node, the node whose gradient it computes; num_before() for a sum.
  const std::vector<int>& origins() const { return origins_; }
  int num_before() const { return num_before_; }

  // Adds a constant of ones, which is the gradient of the value `name`.
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

  // Adds the operators that a gradient maker returned for `node`. Makers use one name for all
  // gradients of a value: Add renames an output whose name the graph has already. So a gradient
  // that a maker computes in place, and that other nodes may read, gets an output of its own.
  void Add(int node, GradientOpsMeta& meta) {
    NameIndex made;
    std::map<std::string, std::string> renamed;
    auto rename = [&](std::string& name) {
      if (const auto found = renamed.find(name); found != renamed.end()) name = found->second;
    };
    for (OperatorDef& op : meta.ops) {
      for (std::string& input : op.mutable_inputs()) rename(input);
      for (std::string& output : op.mutable_outputs()) {
        if (output.empty()) continue;
        rename(output);
        if (made.Find(output) >= 0) continue;
        if (graph_.HasValue(output)) {
          const std::string* value = names_.ValueOf(output);
          std::string fresh = names_.Fresh(value ? std::string(*value) : output);
          renamed[output] = fresh;
          output = std::move(fresh);
        }
        made.Add(output);
      }
      const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
      if (std::string why = schema.Verify(op); !why.empty())
        Throw(ErrorCode::kInvalidArgument, why, "; in gradient node ", ToString(op));
      ForEachRewritten(op, [&](const std::string& input) {
        if (made.Find(input) < 0)
          Throw(ErrorCode::kUnsupported, "gradient node ", ToString(op), " writes to '", input,
                "', which others may read");
      });
      AddNode(std::move(op), node);
    }
    for (size_t i = 0; i < meta.g_input.size(); ++i)
      for (std::string* part :
           {&meta.g_input[i].dense, &meta.g_input[i].indices, &meta.g_input[i].values}) {
        rename(*part);
        if (has_processes_ && made.Find(*part) < 0 && graph_.HasValue(*part))
          *part = AddIdentity(*part, node, graph_.node(node).inputs()[i]);
      }
  }

  // Adds up the gradients of the value `name`: with one node if operator `type` accepts so many
  // inputs, else with nodes of two inputs each.
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
      Throw(
          ErrorCode::kNotFound, "value '", name, "' is used ", list.size(),
          " times, and its gradients are added up by operator '", sum.type(),
          "', which is not registered; include opkit/ops/all.hpp, link opkit::ops, or name another "
          "in GradientOptions::sum_operator");
    const int first = graph_.Producer(list.front().dense);
    if (first >= 0) sum.Device(graph_.node(first).device());
    sum.Process(ProcessOfSum(name, list));
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

  // Removes gradient nodes on which no value in `needed` depends.
  void Prune(NameIndex needed) {
    IndexedVector<char> removed(Index(graph_.num_nodes()), 0);
    for (int i = graph_.num_nodes(); i-- > num_before_;) {
      bool keep = HasEffect(graph_.node(i));
      for (const std::string& output : graph_.node(i).outputs())
        keep |= !output.empty() && needed.Find(output) >= 0;
      ForEachRewritten(graph_.node(i),
                       [&](const std::string& input) { keep |= needed.Find(input) >= 0; });
      removed[i] = !keep;
      if (keep)
        for (const std::string& input : graph_.node(i).inputs()) needed.Add(input);
    }
    std::vector<int> origins;
    for (size_t i = 0; i < origins_.size(); ++i)
      if (!removed[i + Index(num_before_)]) origins.push_back(origins_[i]);
    origins_ = std::move(origins);
    graph_.RemoveNodes(removed);
    if (!ones_.empty() && needed.Find(ones_) < 0) graph_.RemoveConstant(ones_);
  }

 private:
  // True if several processes run the graph: a node names its process, or communicates
  // (opkit/cluster/operators.hpp).
  static bool HasProcesses(const Graph& graph) {
    for (const OperatorDef& def : graph.nodes())
      if (def.process() >= 0 || def.type().starts_with("opkit.cluster.")) return true;
    return false;
  }
  // Adds a node that copies `from`, the gradient of an output of `node`, which is also that of its
  // input. The processes of the two nodes that make and read a gradient decide where it is zero and
  // where it crosses. So each node needs a gradient node in its place.
  std::string AddIdentity(const std::string& from, int node, const std::string& input) {
    if (!OpRegistry::Global().FindSchema("Identity"))
      Throw(ErrorCode::kNotFound, "the gradient '", from, "' of an output of the node ",
            graph_.node(node), " is that of its input '", input,
            "' too; a graph of several processes then needs the operator Identity, which is not "
            "registered; include opkit/ops/all.hpp, or link opkit::ops");
    const OperatorDef& def = graph_.node(node);
    std::string name = names_.Fresh(input);
    AddNode(OperatorDef("Identity", {from}, {name})
                .Device(def.device())
                .Process(def.process())
                .IsGradientOp(true),
            node);
    return name;
  }
  // Returns the process of the node that makes a value; -1 for none, and if each process has it.
  int ProcessOf(const std::string& value) const {
    const int producer = graph_.Producer(value);
    return producer < 0 ? -1 : graph_.node(producer).process();
  }
  // The gradients of a value are added up where it is made. If each process has the value, each
  // adds the gradients that it makes of its own.
  int ProcessOfSum(const std::string& name, const std::vector<GradientValue>& list) const {
    if (const int process = ProcessOf(name); process >= 0) return process;
    for (const GradientValue& gradient : list)
      if (ProcessOf(gradient.dense) < 0) return -1;
    return ProcessOf(list.front().dense);
  }
  void AddNode(OperatorDef def, int node) {
    graph_.AddNode(std::move(def));
    origins_.push_back(node);
  }

  Graph graph_;
  const int num_before_;
  GradientNames names_;
  const bool has_processes_ = HasProcesses(graph_);
  std::string ones_;          // the constant of AddOnes; "": none
  std::vector<int> origins_;  // see origins()
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_GRADIENT_GRADIENT_NODES_HPP_
