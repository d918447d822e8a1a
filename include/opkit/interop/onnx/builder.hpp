// OnnxGraphBuilder: builds a Graph from the tree of an ONNX file, and a Graph from each graph
// inside a node. Values of outer graphs that an inner graph reads become its inputs, because
// opkit's subgraphs see nothing outside.
#ifndef OPKIT_INTEROP_ONNX_BUILDER_HPP_
#define OPKIT_INTEROP_ONNX_BUILDER_HPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx/microsoft_rules.hpp"
#include "opkit/interop/onnx/opset.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Builds one graph. The builder of an inner graph looks up outer values in the builder of the graph
// around it.
class OnnxGraphBuilder {
 public:
  OnnxGraphBuilder(OnnxContext& context, const OnnxGraphProto& proto,
                   OnnxGraphBuilder* around = nullptr, int depth = 0)
      : context_(context), proto_(proto), around_(around), depth_(depth), scope_(context) {}

  Graph Build() {
    if (depth_ > context_.options.max_subgraph_depth)
      Throw(ErrorCode::kUnsupported, "graphs are nested more than ",
            context_.options.max_subgraph_depth, " deep");
    for (const OnnxUnparsed& tensor : proto_.initializers) {
      Declare(tensor.name, "an initializer");
      graph().AddConstant(tensor.name, ReadOnnxTensor(tensor.message, context_.source));
    }
    for (const OnnxValueProto& input : proto_.inputs) Input(input);
    for (size_t i = 0; i < proto_.nodes.size(); ++i)
      AtNode(i, [&] { DeclareOutputs(proto_.nodes[i]); });
    for (const auto* values : {&proto_.values, &proto_.outputs})
      for (const OnnxValueProto& value : *values)
        scope_.Know(value.name, value.info(OnnxDType(value.type)));
    for (size_t i = 0; i < proto_.nodes.size(); ++i) AtNode(i, [&] { Node(proto_.nodes[i]); });
    for (const OnnxValueProto& output : proto_.outputs) Output(output);
    for (const OnnxValueProto* input : defaults_) InputWithDefault(*input);
    static_cast<void>(GraphView(graph()));  // checks for missing values and cycles
    return std::move(graph());
  }
  // The values of outer graphs that became inputs of this graph, in the order of their first use.
  const std::vector<std::string>& captures() const { return captures_; }

 private:
  // A value of a graph around this one.
  struct Outer {
    const Tensor* constant = nullptr;
    bool is_value = false;
    TensorInfo info;
  };

  Graph& graph() { return scope_.graph(); }
  bool IsLocal(const std::string& name) const { return local_.Find(name) >= 0; }
  void AtNode(size_t i, FunctionRef<void()> call) {
    AtOnnxPlace([&] { return OnnxNodePlace(proto_.nodes[i], i); }, call);
  }
  static void AtAttribute(const OnnxAttributeProto& attribute, FunctionRef<void()> call) {
    AtOnnxPlace("attribute", attribute.name, call);
  }
  // Throws kInvalidArgument if the attribute still refers to an attribute of a function call. Such
  // an attribute has no value.
  static void CheckNoReference(const OnnxAttributeProto& attribute) {
    if (!attribute.ref.empty())
      Throw(ErrorCode::kInvalidArgument, "it refers to the attribute '", attribute.ref,
            "' of a function, but is in none");
  }
  // Adds a value of this graph. Throws kInvalidArgument if the graph makes the value twice.
  void Declare(const std::string& name, const char* what) {
    if (IsLocal(name))
      Throw(ErrorCode::kInvalidArgument, "value '", name, "' is made twice, the second time by ",
            what, "; an ONNX graph makes each value once");
    local_.Add(name);
  }

  void Input(const OnnxValueProto& input) {
    if (graph().IsConstant(input.name)) {
      // Up to IR version 3, all initializers were listed as inputs.
      const bool fixed = context_.options.fix_defaults || context_.model.about.ir_version < 4;
      if (fixed || around_) return;
      defaults_.push_back(&input);
      TensorInfo info = TypeOf(input);
      const Tensor& value = *graph().FindConstant(input.name);
      if (info.dtype == DType::kUndefined) info.dtype = value.dtype();
      scope_.KnowDefault(input.name, info);
      return;
    }
    Declare(input.name, "an input");
    TensorInfo info = TypeOf(input);
    scope_.Know(input.name, info, /*checked=*/!around_);
    graph().AddInput({input.name, std::move(info)});
  }
  TensorInfo TypeOf(const OnnxValueProto& input) const {
    TensorInfo info;
    AtOnnxPlace("input", input.name, [&] {
      if (*input.other)
        Throw(ErrorCode::kUnsupported, "it is ", input.other,
              "; opkit's values are tensors, sequences and optional ones of these",
              WhatToGiveInstead(input.name));
      info = input.info(input.type != 0 ? CheckedOnnxDType(input.type) : DType::kUndefined);
    });
    return info;
  }
  // Returns the advice for an input of a type that opkit lacks: to compute its reader's result,
  // such as that of a DictVectorizer, in the program.
  std::string WhatToGiveInstead(const std::string& input) const {
    for (size_t i = 0; i < proto_.nodes.size(); ++i)
      for (const std::string& read : proto_.nodes[i].inputs)
        if (read == input && !proto_.nodes[i].outputs.empty())
          return StrCat("; remove ", OnnxNodePlace(proto_.nodes[i], i), " from the model, make '",
                        proto_.nodes[i].outputs[0],
                        "' an input of it, and compute that tensor in the program");
    return "";
  }
  // Makes an input with a default of a constant, which it was while nodes were read. It stays a
  // constant if a rule that rewrites nodes has used its elements.
  void InputWithDefault(const OnnxValueProto& input) {
    if (!scope_.IsDefault(input.name)) {
      context_.model.about.warnings.push_back(
          StrCat("input '", input.name,
                 "' keeps its default: the reader has used its elements to rewrite a node"));
      return;
    }
    const Tensor value = *graph().FindConstant(input.name);
    graph().RemoveConstant(input.name);
    AtOnnxPlace("input", input.name, [&] { graph().AddInput({input.name, TypeOf(input), value}); });
  }
  void Output(const OnnxValueProto& output) {
    std::string name = output.name;
    Find(name);
    if (!around_) {
      if (const auto zipped = std::ranges::find(zipmaps_, name, &ZipMapColumns::output);
          zipped != zipmaps_.end()) {
        for (const std::string& column : zipped->columns) graph().AddOutput(column);
        context_.model.about.output_types.resize(graph().outputs().size());
        return;
      }
      context_.model.about.output_types.push_back(output.info(OnnxDType(output.type)));
    }
    // If an inner graph returns a value twice, the second output gets a name of its own.
    if (around_ && graph().IsOutput(name)) {
      std::string copy = scope_.FreshName(name);
      scope_.AddNode(OperatorDef("Identity", {std::move(name)}, {copy}));
      name = std::move(copy);
    }
    graph().AddOutput(std::move(name));
  }

  static bool IsConstantNode(const OnnxNodeProto& node) {
    return node.type == "Constant" && node.domain.empty();
  }
  // Declares the outputs of a node. Adds constants before all other nodes, because subgraphs of
  // earlier nodes may read them.
  void DeclareOutputs(const OnnxNodeProto& node) {
    for (const std::string& name : node.outputs)
      if (!name.empty()) Declare(name, "this node");
    if (!IsConstantNode(node)) return;
    if (node.outputs.size() != 1 || node.outputs[0].empty())
      Throw(ErrorCode::kInvalidArgument, "a Constant has one output, found ", node.outputs.size());
    graph().AddConstant(node.outputs[0], ConstantValue(node));
  }
  Tensor ConstantValue(const OnnxNodeProto& node) {
    using Type = OnnxAttributeType;
    if (node.attributes.size() != 1)
      Throw(ErrorCode::kInvalidArgument, "a Constant has one attribute, found ",
            node.attributes.size());
    const OnnxAttributeProto& attribute = node.attributes[0];
    const std::string& name = attribute.name;
    AtAttribute(attribute, [&] { CheckNoReference(attribute); });
    const auto extent = [](const auto& list) { return Shape{static_cast<int64_t>(list.size())}; };
    if (name == "value" && attribute.type == Type::kTensor)
      return ReadOnnxTensor(attribute.bytes[0], context_.source);
    if (name == "value_float" && attribute.type == Type::kFloat)
      return Tensor::From<float>({}, attribute.floats);
    if (name == "value_floats" && attribute.type == Type::kFloats)
      return Tensor::From<float>(extent(attribute.floats), attribute.floats);
    if (name == "value_int" && attribute.type == Type::kInt)
      return Tensor::From<int64_t>({}, attribute.ints);
    if (name == "value_ints" && attribute.type == Type::kInts)
      return Tensor::From<int64_t>(extent(attribute.ints), attribute.ints);
    if ((name == "value_string" && attribute.type == Type::kString) ||
        (name == "value_strings" && attribute.type == Type::kStrings)) {
      const std::vector<std::string> strings(attribute.bytes.begin(), attribute.bytes.end());
      return Tensor::From(name == "value_string" ? Shape{} : extent(strings), strings);
    }
    if (name == "sparse_value")
      Throw(ErrorCode::kUnsupported, "its value '", node.outputs[0],
            "' is sparse, which opkit's tensors are not; it needs a dense one");
    Throw(ErrorCode::kInvalidArgument, "attribute '", name,
          "' of this type is not one that a Constant has");
  }

  void Node(const OnnxNodeProto& node) {
    if (IsConstantNode(node)) return;
    OperatorDef def(node.type, node.inputs, node.outputs);
    def.Name(node.name);
    for (const std::string& name : node.inputs)
      if (!name.empty()) Find(name);
    std::vector<std::string> captures;
    for (const OnnxAttributeProto& attribute : node.attributes)
      AtAttribute(attribute, [&] {
        CheckNoReference(attribute);
        // The type says only what an absent optional value would hold.
        if (node.type == "Optional" && attribute.type == OnnxAttributeType::kTypeProto) return;
        if (attribute.type == OnnxAttributeType::kGraph)
          def.Subgraph(attribute.name, Subgraph(attribute.graphs[0], captures));
        else
          def.Arg(attribute.name, Value(attribute));
      });
    if (!captures.empty()) {
      def.Inputs(captures);
      def.Arg("captures", captures);
    }
    if (node.domain == "ai.onnx.ml" && node.type == "ZipMap") return ZipMap(def);
    const bool is_microsoft = node.domain == "com.microsoft" ||
                              (node.domain.empty() && node.type == "SimplifiedLayerNormalization");
    if (is_microsoft && RewriteMicrosoftNode(scope_, def)) return scope_.AddNode(std::move(def));
    if (node.domain.empty()) {
      RewriteOnnxNode(scope_, def, node.opset);
      CheckAttributes(def);
    }
    scope_.AddNode(std::move(def), node.domain, node.opset, node.library);
  }
  // ZipMap makes a map from labels to scores of each row of a tensor. opkit has no maps: the output
  // is the tensor, and a warning gives the labels of its columns, or each column is an output.
  void ZipMap(const OperatorDef& def) {
    if (def.inputs().size() != 1 || def.outputs().size() != 1)
      Throw(ErrorCode::kInvalidArgument, "a ZipMap has one input and one output");
    const std::vector<std::string> names = LabelsOfZipMap(def);
    const SymbolicShape scores = scope_.ProvenInfoOf(def.inputs()[0]).shape;
    if (scores.has_rank() && scores.rank() > 0 && scores[-1].is_known() &&
        scores[-1].value() != static_cast<int64_t>(names.size()))
      Throw(ErrorCode::kInvalidArgument, "a ZipMap has a label for each column, found ",
            names.size(), " labels and ", scores[-1].value(), " columns");
    if (context_.options.zipmap_columns && !around_) {
      SplitZipMap(def, names);
      return scope_.AddNode(OperatorDef("Identity", def.inputs(), def.outputs()));
    }
    std::string labels;
    for (const NamedAttribute& arg : def.args()) labels += StrCat(" ", ToString(arg.value));
    context_.model.about.warnings.push_back(
        StrCat("ZipMap: '", def.outputs()[0],
               "' is the tensor of scores, not maps; its columns are those of the labels", labels));
    scope_.AddNode(OperatorDef("Identity", def.inputs(), def.outputs()));
  }
  static std::vector<std::string> LabelsOfZipMap(const OperatorDef& def) {
    auto labels = def.args().Get<std::vector<std::string>>("classlabels_strings", {});
    for (const int64_t label : def.args().Get<std::vector<int64_t>>("classlabels_int64s", {}))
      labels.push_back(StrCat(label));
    return labels;
  }
  // Makes a value "map.label" of each column of a ZipMap's tensor.
  void SplitZipMap(const OperatorDef& def, const std::vector<std::string>& labels) {
    if (labels.empty()) Throw(ErrorCode::kInvalidArgument, "a ZipMap has labels, found none");
    std::vector<std::string>& columns =
        zipmaps_.emplace_back(ZipMapColumns{def.outputs()[0], {}}).columns;
    for (const std::string& label : labels) {
      const auto place = Tensor::Scalar(static_cast<int64_t>(columns.size()));
      columns.push_back(scope_.FreshName(StrCat(def.outputs()[0], ".", label)));
      scope_.AddNode(OperatorDef("Gather",
                                 {def.inputs()[0], scope_.AddConstant(def, "column", place)},
                                 {columns.back()}, {{"axis", -1}}));
    }
  }
  // Throws kUnsupported for an attribute that the operator lacks. Compiling would find it, too, but
  // this Error names the model's node.
  void CheckAttributes(const OperatorDef& def) const {
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    if (!schema || context_.options.allow_unknown_operators) return;
    for (const NamedAttribute& arg : def.args())
      if (!schema->TakesArgument(arg.name))
        Throw(ErrorCode::kUnsupported, def.type(), " has no argument '", arg.name, "'",
              schema->SuggestArgument(arg.name));
  }
  // Builds an inner graph and adds the outer values that it reads to `captures`.
  IntrusivePtr<const SubgraphBase> Subgraph(const OnnxGraphProto& proto,
                                            std::vector<std::string>& captures) {
    OnnxGraphBuilder inner(context_, proto, this, depth_ + 1);
    Graph graph = inner.Build();
    for (const std::string& name : inner.captures())
      if (!Contains(captures, name)) captures.push_back(name);
    return MakeSubgraph(std::move(graph));
  }
  Attribute Value(const OnnxAttributeProto& attribute) const {
    using Type = OnnxAttributeType;
    switch (attribute.type) {
      case Type::kFloat:
        return attribute.floats[0];
      case Type::kInt:
        return attribute.ints[0];
      case Type::kString:
        return std::string(attribute.bytes[0]);
      case Type::kTensor:
        return ReadOnnxTensor(attribute.bytes[0], context_.source);
      case Type::kFloats:
        return attribute.floats;
      case Type::kInts:
        return attribute.ints;
      case Type::kStrings:
        return std::vector<std::string>(attribute.bytes.begin(), attribute.bytes.end());
      case Type::kTensors: {
        std::vector<Tensor> tensors;
        for (const std::string_view bytes : attribute.bytes)
          tensors.push_back(ReadOnnxTensor(bytes, context_.source));
        return tensors;
      }
      default:
        Throw(ErrorCode::kUnsupported, "it holds ",
              attribute.type == Type::kGraphs       ? "a list of graphs"
              : attribute.type == Type::kTypeProto  ? "a type"
              : attribute.type == Type::kTypeProtos ? "types"
                                                    : "a sparse tensor",
              ", which opkit's attributes cannot");
    }
  }

  // Makes a value available that a node or output of this graph reads: a value of an outer graph
  // becomes an input or a constant.
  void Find(const std::string& name) {
    if (IsLocal(name) || !around_) return;
    const Outer outer = around_->Provide(name);
    if (outer.constant) {
      local_.Add(name);
      graph().AddConstant(name, *outer.constant);
    } else if (outer.is_value) {
      Capture(name, outer.info);
    }
  }
  void Capture(const std::string& name, const TensorInfo& info) {
    local_.Add(name);
    captures_.push_back(name);
    scope_.Know(name, info);
    graph().AddInput({name, info});
  }
  // Finds a value for an inner graph, here or further out.
  Outer Provide(const std::string& name) {
    Outer out;
    if (IsLocal(name)) {
      if (!scope_.IsDefault(name)) out.constant = graph().FindConstant(name);
      out.is_value = true;
      out.info = scope_.InfoOf(name);
    } else if (around_) {
      out = around_->Provide(name);
      if (out.is_value && !out.constant) Capture(name, out.info);
    }
    // Only inputs keep their declared shape: the shape of other values may differ in each run.
    if (!graph().IsInput(name) && !scope_.IsDefault(name)) out.info.shape = SymbolicShape();
    return out;
  }

  struct ZipMapColumns {
    std::string output;
    std::vector<std::string> columns;  // the values that take its place
  };

  OnnxContext& context_;
  const OnnxGraphProto& proto_;
  OnnxGraphBuilder* around_;
  int depth_;
  OnnxScope scope_;
  NameIndex local_;  // values made here, and outer values that have become inputs or constants
  std::vector<std::string> captures_;
  std::vector<ZipMapColumns> zipmaps_;
  std::vector<const OnnxValueProto*> defaults_;  // inputs that are initializers, too
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_BUILDER_HPP_
