// Graph: operator definitions over named values, with inputs, constants and outputs. Programs build
// or load a graph and passes rewrite it; Compile makes a plan of it, which executors run.
#ifndef OPKIT_GRAPH_GRAPH_HPP_
#define OPKIT_GRAPH_GRAPH_HPP_

#include "opkit/base/index.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/op/inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// True if `name` is an input of the node. If it is also an output, the node rewrites the value and
// does not make it.
bool Reads(const OperatorDef& def, std::string_view name);

}  // namespace detail

// A regular value. Each value of the graph has a name and one producer: an input, a constant or a
// node. A node that writes one of its own inputs under the same name rewrites that value: readers
// that were added before it see the old data, later readers the new data. Otherwise nodes may be
// added in any order. A member that throws leaves the graph unchanged.
//
//   Graph g;
//   g.AddInput("X", DType::kFloat32, {Sym("N"), 3});
//   g.AddConstant("W", weights);
//   g.AddNode(OperatorDef("MatMul").Input("X").Input("W").Output("Y"));
//   g.AddOutput("Y");
class Graph {
 public:
  // An input and a constant of the graph.
  struct Input {
    std::string name;
    TensorInfo info;            // dtype, shape (symbols and unknown extents allowed) and device
    Tensor default_value = {};  // read by runs that are given no tensor; without dtype: none
    bool has_default() const { return default_value.initialized(); }
  };
  struct Constant {
    std::string name;
    Tensor value;
  };

  // Throws kAlreadyExists if the graph makes a value of that name already, and kInvalidArgument for
  // an empty name. So do AddConstant and AddConstantInLayout.
  Graph& AddInput(std::string name, DType dtype, SymbolicShape shape, Device device = {});
  // Takes the dtype, shape, device, the type of the elements and the default from `input`. Throws
  // like the other AddInput and SetDefault.
  Graph& AddInput(Input input);
  // Gives an input a tensor that runs read if they are given none. It is no constant: passes do not
  // use its elements, since a run may be given another tensor. Throws kNotFound for a name that is
  // no input, and kUninitialized, kTypeMismatch or kInvalidArgument for a tensor that a run could
  // not be given: it must have data, the input's dtype, shape and device, and the standard layout.
  Graph& SetDefault(std::string_view name, Tensor value);
  // Converts a tensor in another layout to the standard layout. Throws kInvalidArgument for a
  // tensor without data.
  Graph& AddConstant(std::string name, Tensor value);
  // Adds a constant like AddConstant, but keeps its layout: for graphs of plans, whose kernels read
  // that layout.
  Graph& AddConstantInLayout(std::string name, Tensor value);
  // Returns the node's index. Throws kAlreadyExists if another node, an input or a constant makes
  // one of its outputs. Only Check(graph) and Compile, which see the whole graph, check that the
  // node's inputs exist and that its operator accepts the node.
  int AddNode(OperatorDef def) { return InsertNode(num_nodes(), std::move(def)); }
  // Adds a value that a run returns; an input, constant or node may make it later. Throws
  // kAlreadyExists if the value is an output already.
  Graph& AddOutput(std::string name);

  // Return the parts of the graph, in their order; an index of a node is its place in nodes().
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<OperatorDef>& nodes() const { return nodes_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Throws kOutOfRange for an index that the graph does not have.
  const OperatorDef& node(int i) const { return nodes_[CheckIndex(i)]; }
  bool IsOutput(std::string_view name) const {
    const Declaration* found = declared_.Find(name);
    return found && found->is_output;
  }
  // True if an input, a constant or a node makes a value of that name.
  bool HasValue(std::string_view name) const { return Find(name); }
  bool IsInput(std::string_view name) const { return Find(name, Source::kInput); }
  bool IsConstant(std::string_view name) const { return Find(name, Source::kConstant); }
  // Returns the node that makes the value; -1 for inputs, constants and unknown names.
  int Producer(std::string_view name) const {
    const Declaration* found = Find(name, Source::kNode);
    return found ? found->index : -1;
  }
  // Returns null if the graph has no constant, or no input, of that name.
  const Tensor* FindConstant(std::string_view name) const {
    const Declaration* found = Find(name, Source::kConstant);
    return found ? &constants_[detail::Index(found->index)].value : nullptr;
  }
  const Input* FindInput(std::string_view name) const {
    const Declaration* found = Find(name, Source::kInput);
    return found ? &inputs_[detail::Index(found->index)] : nullptr;
  }
  // Returns a name that no value has: `hint` itself, or `hint`, "_" and a number.
  std::string FreshName(const std::string& hint) const;

  // Members that rewrite the graph. InsertNode shifts the indices from `before` on, RemoveNode
  // those behind `i`. Each call is O(nodes), except inserting at the end; RemoveNodes removes many
  // nodes in one call.
  int InsertNode(int before, OperatorDef def);
  void ReplaceNode(int i, OperatorDef def);
  void RemoveNode(int i);
  // Removes every node i with removed[i] != 0. Throws kInvalidArgument unless `removed` has one
  // element for each node.
  void RemoveNodes(const std::vector<char>& removed);
  // Makes every node that reads `from` read `to`. Outputs of the graph keep their names.
  void ReplaceUses(const std::string& from, const std::string& to);
  // Return false if the graph has no constant, or no output, of that name.
  bool RemoveConstant(std::string_view name);
  bool RemoveOutput(std::string_view name);
  // Drops the elements of a constant, which keeps its place, dtype and shape. Reading the
  // elements later is an Error (kUninitialized). Returns false if the graph has no constant of
  // that name.
  bool ReleaseConstant(std::string_view name);

 private:
  enum class Source : uint8_t { kInput, kConstant, kNode };
  // The source of a name, and its use as an output.
  struct Declaration {
    Source source = Source::kInput;
    int index = -1;  // among the inputs, constants or nodes; -1: nothing makes the name now
    bool is_output = false;
  };

  size_t CheckIndex(int i) const {
    if (i < 0 || i >= num_nodes())
      Throw(ErrorCode::kOutOfRange, "there is no node ", i, ": the graph has ", num_nodes(),
            " nodes");
    return detail::Index(i);
  }
  const Declaration* Find(std::string_view name) const {
    const Declaration* found = declared_.Find(name);
    return found && found->index >= 0 ? found : nullptr;
  }
  const Declaration* Find(std::string_view name, Source source) const {
    const Declaration* found = Find(name);
    return found && found->source == source ? found : nullptr;
  }
  static void CheckDefault(const Input& input, const Tensor& value);
  void Declare(const std::string& name, Source source, size_t index);
  void Set(const std::string& name, Source source, size_t index);
  // Throws kAlreadyExists if a new node makes a value that has a producer other than node
  // `replaced`, which it will replace (-1: none).
  void CheckOutputs(const OperatorDef& def, int replaced) const;
  void DeclareOutputs(size_t node);
  void DeclareAll();
  [[noreturn]] void ThrowMadeTwice(const std::string& name, const Declaration& first,
                                   const std::string& second) const;

  std::vector<Input> inputs_;
  std::vector<Constant> constants_;
  std::vector<OperatorDef> nodes_;
  std::vector<std::string> outputs_;
  detail::NameTable<Declaration> declared_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_HPP_
