// OnnxFunctionInliner: replaces calls of a model's own functions (FunctionProto) by their bodies.
// opkit has no calls, and passes can then optimise the graph as a whole.
#ifndef OPKIT_INTEROP_ONNX_FUNCTIONS_HPP_
#define OPKIT_INTEROP_ONNX_FUNCTIONS_HPP_

#include "opkit/interop/onnx/proto_reader.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Inlines the functions of one model.
class OnnxFunctionInliner {
 public:
  // Replaces every node that calls a function of the model. Throws kUnsupported for endless
  // recursion, and if there are more nodes or bytes than allowed.
  static void Run(OnnxModelProto& model, OnnxProtoReader& reader, const OnnxOptions& options) {
    if (model.functions.empty()) return;
    OnnxFunctionInliner inliner(model, reader, options);
    inliner.Inline(model.graph.nodes, 0);
  }

 private:
  static constexpr size_t kMaxBytes = size_t{1} << 30;

  // A call of a function, with the caller's values for the names and attributes of its body.
  struct Call {
    const OnnxFunctionProto& function;
    const OnnxNodeProto& node;
    std::string prefix;
    NameIndex names;  // formal inputs and outputs
    std::vector<std::string> actual;
    std::vector<OnnxAttributeProto> defaults;  // the defaults parsed so far
  };

  OnnxFunctionInliner(OnnxModelProto& model, OnnxProtoReader& reader, const OnnxOptions& options)
      : model_(model), reader_(reader), options_(options) {
    for (const OnnxFunctionProto& function : model.functions) {
      const std::string key = Key(function.domain, function.name, function.overload);
      if (index_.Find(key) >= 0)
        Throw(ErrorCode::kInvalidArgument, "function '", function.name, "' of domain '",
              function.domain, "' is defined twice");
      index_.Add(key);
    }
  }

  static std::string Key(const std::string& domain, const std::string& name,
                         const std::string& overload) {
    return StrCat(domain, '\0', name, '\0', overload);
  }
  const OnnxFunctionProto* Find(const OnnxNodeProto& node) const {
    const int number = index_.Find(Key(node.domain, node.type, node.overload));
    return number < 0 ? nullptr : &model_.functions[Index(number)];
  }

  // Replaces the calls among `nodes`, and in their graphs.
  void Inline(std::vector<OnnxNodeProto>& nodes, int depth) {
    std::vector<OnnxNodeProto> out;
    for (size_t i = 0; i < nodes.size(); ++i) {
      OnnxNodeProto& node = nodes[i];
      for (OnnxAttributeProto& attribute : node.attributes)
        for (OnnxGraphProto& graph : attribute.graphs) Inline(graph.nodes, depth + 1);
      const OnnxFunctionProto* function = Find(node);
      if (!function) {
        out.push_back(std::move(node));
        continue;
      }
      AtOnnxPlace([&] { return OnnxNodePlace(node, i); },
                  [&] {
                    std::vector<OnnxNodeProto> body = Body(*function, node, depth);
                    for (OnnxNodeProto& inner : body) out.push_back(std::move(inner));
                  });
    }
    nodes = std::move(out);
  }

  std::vector<OnnxNodeProto> Body(const OnnxFunctionProto& function, const OnnxNodeProto& node,
                                  int depth) {
    if (depth >= options_.max_subgraph_depth)
      Throw(ErrorCode::kUnsupported, "function '", function.name, "' calls functions more than ",
            options_.max_subgraph_depth, " deep; does it call itself?");
    if (node.inputs.size() > function.inputs.size() ||
        node.outputs.size() > function.outputs.size())
      Throw(ErrorCode::kInvalidArgument, "function '", function.name, "' has ",
            function.inputs.size(), " inputs and ", function.outputs.size(),
            " outputs, but the node has ", node.inputs.size(), " and ", node.outputs.size());
    for (const std::string_view bytes : function.nodes) Write(bytes.size());
    Call call{function, node, Prefix(node), {}, {}, {}};
    Bind(call, function.inputs, node.inputs, true);
    Bind(call, function.outputs, node.outputs, false);
    std::vector<OnnxNodeProto> body;
    AtOnnxPlace("function", function.name, [&] {
      body = reader_.NodesOf(function);
      for (OnnxNodeProto& inner : body) Substitute(inner, call);
    });
    call.defaults.clear();  // frees memory before the calls in the body need theirs
    Inline(body, depth + 1);
    return body;
  }
  std::string Prefix(const OnnxNodeProto& node) {
    const std::string& name = node.name.empty() ? node.type : node.name;
    return StrCat(name.size() < 200 ? name : "call", "/", ++num_calls_, "/");
  }
  static void Bind(Call& call, const std::vector<std::string>& formal,
                   const std::vector<std::string>& actual, bool inputs) {
    for (size_t i = 0; i < formal.size(); ++i) {
      if (call.names.Find(formal[i]) >= 0)
        Throw(ErrorCode::kUnsupported, "function '", call.function.name, "' has '", formal[i],
              "' twice among its inputs and outputs; it needs an Identity between them");
      const bool given = i < actual.size() && !actual[i].empty();
      if (!given && !inputs) continue;  // an output that the call leaves out
      call.names.Add(formal[i]);
      call.actual.push_back(given ? actual[i] : std::string());
    }
  }

  // Returns the caller's name for a name of the body: the actual input or output, or a name with
  // the prefix of the call.
  std::string Rename(const std::string& name, const Call& call) {
    if (name.empty()) return name;
    const int number = call.names.Find(name);
    if (number >= 0) return call.actual[Index(number)];
    std::string renamed = call.prefix + name;
    model_.names.Add(renamed);
    if (model_.read.Find(name) >= 0) model_.read.Add(renamed);
    return renamed;
  }
  // Renames the values of a node of the body and replaces references to attributes of the function.
  void Substitute(OnnxNodeProto& node, Call& call) {
    node.name = call.prefix + (node.name.empty() ? node.type : node.name);
    for (std::string& name : node.inputs) name = Rename(name, call);
    for (std::string& name : node.outputs) name = Rename(name, call);
    std::vector<OnnxAttributeProto> attributes;
    for (OnnxAttributeProto& attribute : node.attributes) {
      if (attribute.ref.empty())
        for (OnnxGraphProto& graph : attribute.graphs) Substitute(graph, call);
      else if (!Resolve(attribute, call))
        continue;
      attributes.push_back(std::move(attribute));
    }
    node.attributes = std::move(attributes);
  }
  void Substitute(OnnxGraphProto& graph, Call& call) {
    for (OnnxNodeProto& node : graph.nodes) Substitute(node, call);
    for (OnnxUnparsed& tensor : graph.initializers) tensor.name = Rename(tensor.name, call);
    for (auto* values : {&graph.inputs, &graph.outputs, &graph.values})
      for (OnnxValueProto& value : *values) value.name = Rename(value.name, call);
  }
  // Replaces a reference to an attribute by its value. False if the call leaves the attribute out
  // and there is no default; the node then lacks it.
  bool Resolve(OnnxAttributeProto& attribute, Call& call) {
    const OnnxAttributeProto* value = ValueOf(attribute.ref, call);
    if (!value) return false;
    Write(*value);
    std::string name = std::move(attribute.name);
    attribute = *value;
    attribute.name = std::move(name);
    return true;
  }
  // Returns the value of an attribute of the function; null if there is none. An attribute that the
  // call gives was parsed with the call: the nodes of a graph in such an attribute have the opsets
  // and names of the caller. A default is parsed here, with the opsets of the function.
  const OnnxAttributeProto* ValueOf(const std::string& name, Call& call) {
    for (const OnnxAttributeProto& given : call.node.attributes)
      if (given.name == name) return &given;
    for (const OnnxAttributeProto& known : call.defaults)
      if (known.name == name) return &known;
    for (const OnnxUnparsed& fallback : call.function.defaults)
      if (fallback.name == name)
        return &call.defaults.emplace_back(reader_.Attribute(fallback.message));
    return nullptr;
  }

  // Counts the bytes that calls add, because a short file may expand to any number. Throws
  // kUnsupported beyond 1 GiB.
  void Write(size_t bytes) {
    written_ += bytes;
    if (written_ > kMaxBytes)
      Throw(ErrorCode::kUnsupported, "with its functions written out the model has more than ",
            kMaxBytes, " bytes of nodes");
  }
  // Counts the memory of one more copy of an attribute. Functions that pass their graph attribute
  // to another function, inside a further graph, can nest and multiply graphs without bound.
  void Write(const OnnxAttributeProto& attribute, int depth = 0) {
    Write(sizeof(attribute) + attribute.name.size());
    // Twice, because both the tree of the ONNX file and the Graph hold these numbers.
    Write(2 * (attribute.floats.size() * sizeof(float) + attribute.ints.size() * sizeof(int64_t)));
    for (const std::string_view bytes : attribute.bytes) Write(sizeof(bytes) + bytes.size());
    if (!attribute.graphs.empty() && depth >= options_.max_subgraph_depth)
      Throw(ErrorCode::kUnsupported, "graphs are nested more than ", options_.max_subgraph_depth,
            " deep");
    for (const OnnxGraphProto& graph : attribute.graphs) Write(graph, depth + 1);
  }
  void Write(const OnnxGraphProto& graph, int depth) {
    Write(sizeof(graph) + graph.name.size());
    for (const OnnxUnparsed& tensor : graph.initializers)
      Write(sizeof(tensor) + tensor.name.size() + tensor.message.size());
    for (const auto* values : {&graph.inputs, &graph.outputs, &graph.values})
      for (const OnnxValueProto& value : *values)
        Write(sizeof(value) + value.name.size() + value.shape.dims().size() * sizeof(Dim));
    for (const OnnxNodeProto& node : graph.nodes) {
      reader_.CountNode();
      Write(sizeof(node) + node.name.size() + node.type.size() + node.domain.size());
      for (const auto* names : {&node.inputs, &node.outputs})
        for (const std::string& name : *names) Write(sizeof(name) + name.size());
      for (const OnnxAttributeProto& attribute : node.attributes) Write(attribute, depth);
    }
  }

  OnnxModelProto& model_;
  OnnxProtoReader& reader_;
  const OnnxOptions& options_;
  NameIndex index_;  // the functions' keys, in the order of model_.functions
  int64_t num_calls_ = 0;
  size_t written_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_FUNCTIONS_HPP_
