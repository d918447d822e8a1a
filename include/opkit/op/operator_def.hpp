// OperatorDef: one node, as plain data: the op's type, the names of what it reads and writes, its
// attributes, the device and the backend asked for. Everything else is derived from it.
#ifndef OPKIT_OP_OPERATOR_DEF_HPP_
#define OPKIT_OP_OPERATOR_DEF_HPP_

#include "opkit/core/attribute.hpp"

namespace opkit::inline OPKIT_ABI {

// A graph that an operator carries (the branches of If, the body of Loop). Immutable once shared.
// The folder graph/ says what a graph is; here it is only carried and compared.
class SubgraphBase : public detail::RefCounted {
 public:
  virtual bool Equals(const SubgraphBase& other) const = 0;
  virtual std::string Describe() const = 0;
};

// Whether a node may run on other backends than those that it names.
enum BackendNeed : uint8_t { kPreferred, kRequired };

// One named subgraph of a node. Copies share the graph.
struct NamedSubgraph {
  std::string name;
  detail::IntrusivePtr<const SubgraphBase> graph;
  friend bool operator==(const NamedSubgraph& a, const NamedSubgraph& b) {
    return a.name == b.name && (a.graph == b.graph || a.graph->Equals(*b.graph));
  }
};

// A regular value with a fluent builder; an overload with an argument sets or adds, one without
// reads.
//
//   OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f).Device(DeviceType::kCPU)
class OperatorDef {
 public:
  OperatorDef() = default;
  explicit OperatorDef(std::string type) : type_(std::move(type)) {}
  OperatorDef(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
              Arguments args = {});
  OperatorDef(const OperatorDef&);
  OperatorDef(OperatorDef&&) noexcept;
  OperatorDef& operator=(const OperatorDef& other);
  OperatorDef& operator=(OperatorDef&&) noexcept;
  ~OperatorDef();

  OperatorDef& Type(std::string type) { return type_ = std::move(type), *this; }
  OperatorDef& Name(std::string name) { return name_ = std::move(name), *this; }
  // Adds one; an empty name leaves an optional input or output out.
  OperatorDef& Input(std::string name);
  OperatorDef& Output(std::string name);
  OperatorDef& Inputs(const std::vector<std::string>& names);
  OperatorDef& Outputs(const std::vector<std::string>& names);
  // Adds the name of a node that must run before this one though this one reads none of its
  // outputs.
  OperatorDef& ControlInput(std::string name);
  OperatorDef& Arg(std::string name, Attribute value);
  // Adds, or replaces the subgraph of that name (MakeSubgraph of graph/subgraph.hpp makes one).
  // Error (kInvalidArgument) for null.
  OperatorDef& Subgraph(std::string name, detail::IntrusivePtr<const SubgraphBase> graph);
  OperatorDef& Device(::opkit::Device device) { return device_ = device, *this; }
  OperatorDef& Device(DeviceType type, int32_t index = 0) { return Device({type, index}); }
  // Backends to try, in order, separated by commas. "DEFAULT" is the plain operator. Preferred ones
  // that are not in the program, or refuse the node, are passed over, so that one net serves
  // machines with and without them; of required ones one must take the node.
  OperatorDef& Engine(std::string engine, BackendNeed need = kPreferred) {
    engine_ = std::move(engine);
    engine_need_ = need;
    return *this;
  }
  OperatorDef& IsGradientOp(bool value) { return is_gradient_op_ = value, *this; }

  const std::string& type() const { return type_; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::vector<std::string>& control_inputs() const { return control_inputs_; }
  const Arguments& args() const { return args_; }
  Arguments& mutable_args() { return args_; }
  const std::vector<NamedSubgraph>& subgraphs() const { return subgraphs_; }
  // Null when there is none of that name.
  const SubgraphBase* FindSubgraph(std::string_view name) const;
  ::opkit::Device device() const { return device_; }
  const std::string& engine() const { return engine_; }
  bool requires_engine() const { return engine_need_ == kRequired && !engine_.empty(); }
  bool is_gradient_op() const { return is_gradient_op_; }
  std::vector<std::string>& mutable_inputs() { return inputs_; }
  std::vector<std::string>& mutable_outputs() { return outputs_; }

  // "Scale 'name' (X) -> (Y)": how messages name a node.
  OPKIT_COLD friend std::string ToString(const OperatorDef& def);
  friend bool operator==(const OperatorDef&, const OperatorDef&) = default;

 private:
  std::string type_;
  std::string name_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
  std::vector<std::string> control_inputs_;
  Arguments args_;
  std::vector<NamedSubgraph> subgraphs_;
  ::opkit::Device device_;
  std::string engine_;
  BackendNeed engine_need_ = kPreferred;
  bool is_gradient_op_ = false;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/operator_def.ipp"
#endif

#endif  // OPKIT_OP_OPERATOR_DEF_HPP_
