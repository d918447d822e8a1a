// OperatorDef: a node as plain data: the operator's type, the names of its inputs and outputs, its
// attributes, its device and the requested backend. Schemas and registries provide all other facts.
#ifndef OPKIT_OP_OPERATOR_DEF_HPP_
#define OPKIT_OP_OPERATOR_DEF_HPP_

#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class GradientNames;
class InferenceContext;
class OperatorDef;
struct GradientOpsMeta;
struct GradientValue;

namespace detail {

// A graph that an operator carries (the branches of If, the body of Loop). Immutable once shared.
// The folder graph/ defines graphs. This interface only stores and compares a graph, and answers
// questions about the node that runs the graph. The node's inputs and outputs match the graph's by
// position.
class SubgraphBase : public RefCounted {
 public:
  virtual bool Equals(const SubgraphBase& other) const = 0;
  virtual std::string Describe() const = 0;
  // Returns the graph's numbers of inputs and outputs; -1 for an unknown number.
  virtual std::pair<int, int> Arity() const { return {-1, -1}; }
  // Infers the types of the node's inputs and outputs from the graph; does nothing if their counts
  // differ.
  virtual void Infer(InferenceContext&) const {}
  // Fills in the operators that compute the gradients of the node's inputs. Returns false if the
  // graph cannot.
  virtual bool MakeGradient(const OperatorDef&, const std::vector<GradientValue>&, GradientNames&,
                            GradientOpsMeta&) const {
    return false;
  }
  // Returns the indices of the inputs that the graph writes to.
  virtual std::vector<int> MutatedInputs() const { return {}; }
};

// One named subgraph of a node. Copies share the graph.
struct NamedSubgraph {
  std::string name;
  IntrusivePtr<const SubgraphBase> graph;
  friend bool operator==(const NamedSubgraph& a, const NamedSubgraph& b) {
    return a.name == b.name && (a.graph == b.graph || a.graph->Equals(*b.graph));
  }
};

}  // namespace detail

// A regular value with a fluent builder: an overload with an argument sets or adds, an overload
// without an argument reads. Copies share their fields until a copy is changed, so that copies of a
// graph and the operators of its nodes share one set of fields. Copying the definition makes
// references from mutable_…() functions invalid.
//
//   OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f).Device(DeviceType::kCPU)
class OperatorDef {
 public:
  // The strength of a node's request for backends: kPreferred also allows other backends, kRequired
  // does not.
  enum BackendNeed : uint8_t { kPreferred, kRequired };

  OperatorDef() = default;
  // A node of the operator `type`; the other parts may be given here or by the setters below.
  explicit OperatorDef(std::string type) { Type(std::move(type)); }
  OperatorDef(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
              Arguments args = {});

  // Set the operator, and the node's own name, which messages and profiles show.
  OperatorDef& Type(std::string type) { return mutable_fields().type = std::move(type), *this; }
  OperatorDef& Name(std::string name) { return mutable_fields().name = std::move(name), *this; }
  // Adds an input or output; an empty name leaves an optional input or output out.
  OperatorDef& Input(std::string name);
  OperatorDef& Output(std::string name);
  OperatorDef& Inputs(const std::vector<std::string>& names);
  OperatorDef& Outputs(const std::vector<std::string>& names);
  // Adds the name of a node that must run before this node, although this node reads none of its
  // outputs.
  OperatorDef& ControlInput(std::string name);
  OperatorDef& Arg(std::string name, Attribute value);
  // Adds a subgraph, or replaces the subgraph of that name (MakeSubgraph of graph/subgraph.hpp
  // makes a graph). Throws kInvalidArgument for null.
  OperatorDef& Subgraph(std::string name, detail::IntrusivePtr<const detail::SubgraphBase> graph);
  OperatorDef& Device(::opkit::Device device) { return mutable_fields().device = device, *this; }
  OperatorDef& Device(DeviceType type, int32_t index = 0) { return Device({type, index}); }
  // Sets the backends to try, in order, separated by commas. "DEFAULT" is the plain operator.
  // Preferred backends that are not in the program, or refuse the node, are skipped, so that one
  // net runs on machines with and without them. Of required backends, one must accept the node.
  OperatorDef& Backends(std::string backends, BackendNeed need = kPreferred) {
    mutable_fields().backends = std::move(backends);
    mutable_fields().backend_need = need;
    return *this;
  }
  // Caffe2's name of Backends().
  OperatorDef& Engine(std::string backends) { return Backends(std::move(backends)); }
  // Sets the process that runs the node, from 0, if several processes run the graph together
  // (PlanOptions::cluster); -1, the default: each process runs it.
  OperatorDef& Process(int process) { return mutable_fields().process = process, *this; }
  OperatorDef& IsGradientOp(bool value) { return mutable_fields().is_gradient_op = value, *this; }

  // Return the parts that the setters have set, by reference into the definition.
  const std::string& type() const { return fields().type; }
  const std::string& name() const { return fields().name; }
  const std::vector<std::string>& inputs() const { return fields().inputs; }
  const std::vector<std::string>& outputs() const { return fields().outputs; }
  // Caffe2's spellings. They are members, because a ported source calls them on the toolkit's own
  // nodes.
  int input_size() const { return static_cast<int>(inputs().size()); }
  int output_size() const { return static_cast<int>(outputs().size()); }
  const std::string& input(int i) const { return inputs().at(static_cast<size_t>(i)); }
  const std::string& output(int i) const { return outputs().at(static_cast<size_t>(i)); }
  const std::vector<std::string>& control_inputs() const { return fields().control_inputs; }
  const Arguments& args() const { return fields().args; }
  const std::vector<detail::NamedSubgraph>& subgraphs() const { return fields().subgraphs; }
  // Returns null if there is no subgraph of that name.
  const detail::SubgraphBase* FindSubgraph(std::string_view name) const;
  ::opkit::Device device() const { return fields().device; }
  const std::string& backends() const { return fields().backends; }
  bool requires_backends() const {
    return fields().backend_need == kRequired && !fields().backends.empty();
  }
  int process() const { return fields().process; }
  bool is_gradient_op() const { return fields().is_gradient_op; }
  Arguments& mutable_args() { return mutable_fields().args; }
  std::vector<std::string>& mutable_inputs() { return mutable_fields().inputs; }
  std::vector<std::string>& mutable_outputs() { return mutable_fields().outputs; }
  std::vector<std::string>& mutable_control_inputs() { return mutable_fields().control_inputs; }

  // Returns the node's text for messages: "Scale 'name' (X) -> (Y)".
  OPKIT_COLD friend std::string ToString(const OperatorDef& def);
  friend bool operator==(const OperatorDef& a, const OperatorDef& b) {
    return a.shared_ == b.shared_ || a.fields() == b.fields();
  }

 private:
  struct Fields {
    std::string type;
    std::string name;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::vector<std::string> control_inputs;
    Arguments args;
    std::vector<detail::NamedSubgraph> subgraphs;
    ::opkit::Device device;
    std::string backends;
    BackendNeed backend_need = kPreferred;
    int process = -1;
    bool is_gradient_op = false;
    friend bool operator==(const Fields&, const Fields&) = default;
  };
  OPKIT_INLINE static const Fields& NoFields();
  const Fields& fields() const { return shared_ ? shared_->value : NoFields(); }
  // Returns fields that no other definition shares; copies them first if necessary.
  OPKIT_INLINE Fields& mutable_fields();

  detail::IntrusivePtr<detail::Shared<Fields>> shared_;  // null: default fields
};

// A program writes kRequired without the class.
using enum OperatorDef::BackendNeed;

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/operator_def.ipp"
#endif

#endif  // OPKIT_OP_OPERATOR_DEF_HPP_
