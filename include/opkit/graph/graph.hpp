// Graph: operator definitions over named values, with inputs, constants and outputs. Plain data
// that is built, loaded and rewritten by passes; Compile makes a plan of it, which runs.
#ifndef OPKIT_GRAPH_GRAPH_HPP_
#define OPKIT_GRAPH_GRAPH_HPP_

#include "opkit/base/name_index.hpp"
#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {

struct GraphInput {
  std::string name;
  TensorInfo info;  // dtype, shape (symbols and unknown extents allowed) and device
};

struct GraphConstant {
  std::string name;
  Tensor value;
};

// Where a value comes from.
enum class ValueSource : uint8_t { kInput, kConstant, kNode };

// A regular value. Every name is made once: by an input, a constant or a node; a node that writes
// one of its own inputs by the same name rewrites it, and then the order in which nodes were added
// says who reads it before and after. Otherwise nodes may be added in any order. A member that
// throws leaves the graph as it was.
//
//   Graph g;
//   g.AddInput("X", DType::kFloat32, {Sym("N"), 3});
//   g.AddConstant("W", weights);
//   g.AddNode(OperatorDef("MatMul").Input("X").Input("W").Output("Y"));
//   g.AddOutput("Y");
//
// A template over its own parts, as nearly everything in this folder is a template: a program
// compiles what it uses. Types that depend on a parameter cost a program nothing that has no use
// for them; that is why `const auto&` stands where the type is known.
template <class InputType, class ConstantType, class DefType>
class BasicGraph {
 public:
  using Input = InputType;
  using Constant = ConstantType;
  using Def = DefType;

  // Error (kAlreadyExists) for a name that is made already, kInvalidArgument for an empty one.
  BasicGraph& AddInput(std::string name, DType dtype, SymbolicShape shape, Device device = {}) {
    Declare(name, ValueSource::kInput, inputs_.size());
    Input input{std::move(name), TensorInfo(dtype, std::move(shape))};
    input.info.device = device;
    inputs_.push_back(std::move(input));
    return *this;
  }
  BasicGraph& AddConstant(std::string name, Tensor value) {
    if (!value.initialized())
      Throw(ErrorCode::kInvalidArgument, "constant '", name, "' has no data; fill it first");
    Declare(name, ValueSource::kConstant, constants_.size());
    constants_.push_back({std::move(name), std::move(value)});
    return *this;
  }
  // Returns the node's index. What it reads and what its operator says of it is checked when the
  // graph is whole: Check(graph), or Compile.
  int AddNode(Def def) { return InsertNode(num_nodes(), std::move(def)); }
  // A value that a run returns; it may be made later. Error (kAlreadyExists) when it is one
  // already.
  BasicGraph& AddOutput(std::string name) {
    if (name.empty()) Throw(ErrorCode::kInvalidArgument, "an output of a graph needs a name");
    if (IsOutput(name))
      Throw(ErrorCode::kAlreadyExists, "'", name, "' is an output of the graph already");
    outputs_.push_back(std::move(name));
    return *this;
  }

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<Def>& nodes() const { return nodes_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Error (kOutOfRange) for an index that the graph does not have.
  const Def& node(int i) const { return nodes_[CheckIndex(i)]; }
  bool IsOutput(std::string_view name) const {
    for (const std::string& output : outputs_)
      if (output == name) return true;
    return false;
  }
  // Made by an input, a constant or a node.
  bool HasValue(std::string_view name) const { return Find(name) != nullptr; }
  bool IsInput(std::string_view name) const { return Is(name, ValueSource::kInput); }
  bool IsConstant(std::string_view name) const { return Is(name, ValueSource::kConstant); }
  // The node that makes the value; -1 for inputs, constants and unknown names.
  int Producer(std::string_view name) const {
    const Declaration* found = Find(name);
    return found && found->source == ValueSource::kNode ? found->index : -1;
  }
  // Null when there is none of that name.
  const Tensor* FindConstant(std::string_view name) const {
    return IsConstant(name) ? &constants_[static_cast<size_t>(Find(name)->index)].value : nullptr;
  }
  const Input* FindInput(std::string_view name) const {
    return IsInput(name) ? &inputs_[static_cast<size_t>(Find(name)->index)] : nullptr;
  }
  // A name that no value has: `hint` itself, or with a number behind it.
  std::string FreshName(const std::string& hint) const {
    std::string name = hint;
    for (int n = 1; HasValue(name) || IsOutput(name); ++n) name = StrCat(hint, "_", n);
    return name;
  }

  // Rewriting. Indices of nodes at and behind the place shift. Each call is O(nodes), but for
  // adding at the end; RemoveNodes takes many at once.
  int InsertNode(int before, Def def) {
    if (before < 0 || before > num_nodes())
      Throw(ErrorCode::kOutOfRange, "cannot insert a node before ", before, " of ", num_nodes());
    if (def.type().empty()) Throw(ErrorCode::kInvalidArgument, "a node needs an operator");
    CheckOutputs(def, -1);
    nodes_.insert(nodes_.begin() + before, std::move(def));
    if (before + 1 == num_nodes()) {
      DeclareOutputs(before);
    } else {
      Index();
    }
    return before;
  }
  void ReplaceNode(int i, Def def) {
    CheckIndex(i);
    CheckOutputs(def, i);
    nodes_[static_cast<size_t>(i)] = std::move(def);
    Index();
  }
  void RemoveNode(int i) {
    std::vector<char> removed(nodes_.size(), 0);
    removed[CheckIndex(i)] = 1;
    RemoveNodes(removed);
  }
  // Removes node i where removed[i] is not 0.
  void RemoveNodes(const std::vector<char>& removed) {
    if (removed.size() != nodes_.size())
      Throw(ErrorCode::kInvalidArgument, "RemoveNodes needs a flag for each of ", num_nodes(),
            " nodes, found ", removed.size());
    std::vector<Def> kept;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!removed[i]) kept.push_back(std::move(nodes_[i]));
    nodes_ = std::move(kept);
    Index();
  }
  // Every node that read `from` now reads `to`. Outputs of the graph keep their names.
  void ReplaceUses(const std::string& from, const std::string& to) {
    for (Def& def : nodes_)
      for (std::string& input : def.mutable_inputs())
        if (input == from) input = to;
  }
  // False when there is none of that name.
  bool RemoveConstant(std::string_view name) {
    if (!IsConstant(name)) return false;
    constants_.erase(constants_.begin() + Find(name)->index);
    Index();
    return true;
  }
  bool RemoveOutput(std::string_view name) {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i] == name) {
        outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      }
    return false;
  }

 private:
  struct Declaration {
    ValueSource source = ValueSource::kInput;
    int index = -1;  // among the inputs, constants or nodes; -1: the name is not made now
  };

  size_t CheckIndex(int i) const {
    if (i < 0 || i >= num_nodes())
      Throw(ErrorCode::kOutOfRange, "node ", i, " of a graph that has ", num_nodes());
    return static_cast<size_t>(i);
  }
  const Declaration* Find(std::string_view name) const {
    const int number = names_.Find(name);
    if (number < 0 || declared_[static_cast<size_t>(number)].index < 0) return nullptr;
    return &declared_[static_cast<size_t>(number)];
  }
  bool Is(std::string_view name, ValueSource source) const {
    const Declaration* found = Find(name);
    return found && found->source == source;
  }
  void Declare(const std::string& name, ValueSource source, size_t index) {
    if (name.empty())
      Throw(ErrorCode::kInvalidArgument, source == ValueSource::kInput ? "an input" : "a constant",
            " of a graph needs a name");
    if (const Declaration* found = Find(name)) ThrowMadeTwice(name, *found, "");
    Set(name, {source, static_cast<int>(index)});
  }
  void Set(const std::string& name, Declaration declaration) {
    const auto number = static_cast<size_t>(names_.Add(name));
    if (number >= declared_.size()) declared_.resize(number + 1);
    declared_[number] = declaration;
  }
  // Of a node that is about to take the place of node `replaced` (-1: none).
  void CheckOutputs(const Def& def, int replaced) const {
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      const std::string& name = def.outputs()[o];
      if (name.empty()) continue;
      for (size_t other = 0; other < o; ++other)
        if (def.outputs()[other] == name)
          Throw(ErrorCode::kAlreadyExists, "node ", ToString(def), " makes '", name, "' twice");
      const Declaration* found = Find(name);
      if (!found || Rewrites(def, name)) continue;
      if (found->source == ValueSource::kNode && found->index == replaced) continue;
      ThrowMadeTwice(name, *found, ToString(def));
    }
  }
  static bool Rewrites(const Def& def, const std::string& name) {
    for (const std::string& input : def.inputs())
      if (input == name) return true;
    return false;
  }
  [[noreturn]] OPKIT_COLD void ThrowMadeTwice(const std::string& name, const Declaration& first,
                                              const std::string& second) const {
    Throw(ErrorCode::kAlreadyExists, "value '", name, "' is made ",
          first.source == ValueSource::kInput ? "by an input of the graph"
          : first.source == ValueSource::kConstant
              ? "by a constant"
              : "by node " + ToString(nodes_[static_cast<size_t>(first.index)]),
          " already", second.empty() ? "" : " and again by node " + second,
          "; give one of them another name");
  }
  void DeclareOutputs(int node) {
    const Def& def = nodes_[static_cast<size_t>(node)];
    for (const std::string& name : def.outputs())
      if (!name.empty() && !Rewrites(def, name)) Set(name, {ValueSource::kNode, node});
  }
  void Index() {
    names_ = NameIndex();
    declared_.clear();
    for (size_t i = 0; i < inputs_.size(); ++i)
      Set(inputs_[i].name, {ValueSource::kInput, static_cast<int>(i)});
    for (size_t i = 0; i < constants_.size(); ++i)
      Set(constants_[i].name, {ValueSource::kConstant, static_cast<int>(i)});
    for (int i = 0; i < num_nodes(); ++i) DeclareOutputs(i);
  }

  std::vector<Input> inputs_;
  std::vector<Constant> constants_;
  std::vector<Def> nodes_;
  std::vector<std::string> outputs_;
  NameIndex names_;
  std::vector<Declaration> declared_;  // by the number in `names_`
};
using Graph = BasicGraph<GraphInput, GraphConstant, OperatorDef>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_HPP_
