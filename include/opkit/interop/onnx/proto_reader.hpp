// OnnxProtoReader: parses the bytes of an ONNX file to the tree of proto.hpp. For a malformed file
// throws an Error that names the node or value.
#ifndef OPKIT_INTEROP_ONNX_PROTO_READER_HPP_
#define OPKIT_INTEROP_ONNX_PROTO_READER_HPP_

#include "opkit/interop/onnx/proto.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Restores the names of a body's values that the writer changed.
class OnnxRenaming {
 public:
  // Reads an entry of the body's metadata_props. Ignores entries of other programs.
  void Read(std::string_view bytes) {
    auto [key, value] = ReadOnnxEntry(bytes);
    const size_t begin = std::char_traits<char>::length(kOnnxNameKey);
    if (key.compare(0, begin, kOnnxNameKey) != 0 || value.empty()) return;
    const auto number = static_cast<size_t>(from_.Add(key.substr(begin)));
    if (number == to_.size()) to_.push_back(std::move(value));
  }
  bool empty() const { return to_.empty(); }
  void Apply(OnnxGraphProto& graph) const {
    for (OnnxUnparsed& tensor : graph.initializers) Rename(tensor.name);
    for (auto* values : {&graph.inputs, &graph.outputs, &graph.values})
      for (OnnxValueProto& value : *values) Rename(value.name);
    for (OnnxNodeProto& node : graph.nodes) {
      for (auto* names : {&node.inputs, &node.outputs})
        for (std::string& name : *names) Rename(name);
      for (OnnxAttributeProto& attribute : node.attributes)
        for (OnnxGraphProto& inner : attribute.graphs) Apply(inner);
    }
  }
  template <class F>
  void ForEach(F visit) const {
    for (size_t i = 0; i < to_.size(); ++i) visit(from_[static_cast<int>(i)], to_[i]);
  }

 private:
  void Rename(std::string& name) const {
    const int number = from_.Find(name);
    if (number >= 0) name = to_[Index(number)];
  }

  NameIndex from_;
  std::vector<std::string> to_;
};

// Parses one file.
class OnnxProtoReader {
 public:
  // `options` and `model` must outlive the reader. Read fills `model`.
  OnnxProtoReader(const OnnxOptions& options, OnnxModelProto& model)
      : options_(options), model_(model) {}

  void Read(std::string_view bytes) {
    std::string_view graph;
    bool has_graph = false;
    std::vector<std::string_view> functions;
    std::string producer_version;
    OnnxModel& about = model_.about;
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field == OnnxModelField::kIrVersion) about.ir_version = message.Int();
      if (field == OnnxModelField::kProducerName) about.producer = message.String();
      if (field == OnnxModelField::kProducerVersion) producer_version = message.String();
      if (field == OnnxModelField::kDomain) about.domain = message.String();
      if (field == OnnxModelField::kModelVersion) about.model_version = message.Int();
      if (field == OnnxModelField::kDocString) about.doc = message.String();
      if (field == OnnxModelField::kGraph) {
        graph = message.Bytes();
        has_graph = true;
      }
      if (field == OnnxModelField::kOpsetImport) about.opsets.push_back(Opset(message.Bytes()));
      if (field == OnnxModelField::kMetadataProps)
        about.metadata.push_back(ReadOnnxEntry(message.Bytes()));
      if (field == OnnxModelField::kFunctions) functions.push_back(message.Bytes());
    }
    if (!has_graph)
      Throw(ErrorCode::kInvalidArgument, "the model has no graph; is it an ONNX file?");
    if (!producer_version.empty()) about.producer += " " + producer_version;
    opsets_ = &about.opsets;
    GraphInto(graph, 0, model_.graph);
    about.name = model_.graph.name;
    for (const std::string_view function : functions) Function(function);
  }
  // Parses the nodes of a function, for one call of it.
  std::vector<OnnxNodeProto> NodesOf(const OnnxFunctionProto& function) {
    opsets_ = &function.opsets;
    std::vector<OnnxNodeProto> out;
    for (const std::string_view node : function.nodes) out.push_back(Node(node, out.size(), 0));
    return out;
  }
  OnnxAttributeProto Attribute(std::string_view bytes, int depth = 0) {
    OnnxAttributeProto out;
    out.name = AttributeName(bytes);
    AtOnnxPlace("attribute", out.name, [&] { AttributeInto(bytes, depth, out); });
    return out;
  }
  // Counts a node of the model, or a copy that a function call makes. Throws kUnsupported beyond
  // OnnxOptions::max_nodes.
  void CountNode() {
    if (++num_nodes_ > options_.max_nodes)
      Throw(ErrorCode::kUnsupported, "the model has more than ", options_.max_nodes,
            " nodes, its functions written out; raise OnnxOptions::max_nodes if that is right");
  }

 private:
  static std::string Domain(std::string_view name) {
    return name == "ai.onnx" ? std::string() : std::string(name);
  }
  static OnnxOpset Opset(std::string_view bytes) {
    OnnxOpset out;
    for (WireMessage message(bytes); message.Next();) {
      if (message.field() == OnnxOpsetField::kDomain) out.domain = Domain(message.Bytes());
      if (message.field() == OnnxOpsetField::kVersion) out.version = message.Int();
    }
    return out;
  }

  void GraphInto(std::string_view bytes, int depth, OnnxGraphProto& out) {
    if (depth > options_.max_subgraph_depth)
      Throw(ErrorCode::kUnsupported, "graphs are nested more than ", options_.max_subgraph_depth,
            " deep");
    OnnxRenaming renaming;
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field == OnnxGraphField::kNode)
        out.nodes.push_back(Node(message.Bytes(), out.nodes.size(), depth));
      if (field == OnnxGraphField::kName) out.name = message.String();
      if (field == OnnxGraphField::kInitializer)
        out.initializers.push_back(Initializer(message.Bytes(), out.initializers.size()));
      if (field == OnnxGraphField::kInput)
        out.inputs.push_back(Value(message.Bytes(), "input", out.inputs.size()));
      if (field == OnnxGraphField::kOutput) {
        Append(Value(message.Bytes(), "output", out.outputs.size()), out.outputs, "outputs");
        model_.read.Add(out.outputs.back().name);
      }
      if (field == OnnxGraphField::kValueInfo)
        out.values.push_back(Value(message.Bytes(), "value_info", out.values.size()));
      if (field == OnnxGraphField::kSparseInitializer)
        Throw(ErrorCode::kUnsupported, "sparse initializer '", SparseName(message.Bytes()),
              "': opkit has no sparse tensors; store it dense");
      if (field == OnnxGraphField::kMetadataProps && depth > 0) renaming.Read(message.Bytes());
    }
    if (renaming.empty()) return;
    renaming.Apply(out);
    renaming.ForEach([&](const std::string& from, const std::string& to) {
      model_.names.Add(to);
      if (model_.read.Find(from) >= 0) model_.read.Add(to);
    });
  }

  OnnxUnparsed Initializer(std::string_view bytes, size_t index) {
    OnnxUnparsed out{std::string(), bytes};
    AtOnnxPlace([&] { return StrCat("initializer ", index); },
                [&] {
                  for (WireMessage message(bytes); message.Next();)
                    if (message.field() == OnnxTensorField::kName) out.name = message.String();
                  if (out.name.empty()) Throw(ErrorCode::kInvalidArgument, "it has no name");
                });
    model_.names.Add(out.name);
    return out;
  }
  static std::string SparseName(std::string_view bytes) {
    OnnxTensorHeader header;
    for (WireMessage message(bytes); message.Next();)
      if (message.field() == OnnxSparseTensorField::kValues)
        ReadOnnxTensorHeader(message.Bytes(), header);
    return std::string(header.name);
  }

  OnnxValueProto Value(std::string_view bytes, const char* what, size_t index) {
    OnnxValueProto out;
    AtOnnxPlace(
        [&] {
          return out.name.empty() ? StrCat(what, " ", index) : StrCat(what, " '", out.name, "'");
        },
        [&] {
          for (WireMessage message(bytes); message.Next();) {
            if (message.field() == OnnxValueInfoField::kName) out.name = message.String();
            if (message.field() == OnnxValueInfoField::kType) Type(message.Bytes(), out);
          }
          if (out.name.empty()) Throw(ErrorCode::kInvalidArgument, "it has no name");
        });
    model_.names.Add(out.name);
    return out;
  }
  static void Type(std::string_view bytes, OnnxValueProto& out) {
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field == OnnxTypeField::kTensor) TensorType(message.Bytes(), out);
      if (field == OnnxTypeField::kSequence || field == OnnxTypeField::kOptional)
        ContainerType(message.Bytes(), field, out);
      if (field == OnnxTypeField::kMap) out.other = "a map";
      if (field == OnnxTypeField::kOpaque) out.other = "opaque";
      if (field == OnnxTypeField::kSparseTensor) out.other = "a sparse tensor";
    }
  }
  // Parses the type of a sequence or of an optional value, which may hold a sequence.
  static void ContainerType(std::string_view bytes, int kind, OnnxValueProto& out) {
    const bool is_sequence = kind == OnnxTypeField::kSequence;
    if (out.container == DType::kSequence || (out.container == DType::kOptional && !is_sequence)) {
      out.other = "a container of containers";
      return;
    }
    if (out.container == DType::kOptional)
      out.holds_sequence = true;
    else
      out.container = is_sequence ? DType::kSequence : DType::kOptional;
    for (WireMessage message(bytes); message.Next();)
      if (message.field() == OnnxContainerTypeField::kElemType) Type(message.Bytes(), out);
  }
  static void TensorType(std::string_view bytes, OnnxValueProto& out) {
    for (WireMessage message(bytes); message.Next();) {
      if (message.field() == OnnxTensorTypeField::kElemType) {
        out.type = message.Int();
      } else if (message.field() == OnnxTensorTypeField::kShape) {
        std::vector<Dim> dims;
        for (WireMessage shape(message.Bytes()); shape.Next();) {
          if (shape.field() != OnnxShapeField::kDim) continue;
          if (dims.size() == kMaxOnnxRank)
            Throw(ErrorCode::kUnsupported, "it has more than ", kMaxOnnxRank, " dimensions");
          dims.push_back(Extent(shape.Bytes()));
        }
        out.shape = SymbolicShape(std::move(dims));
      }
    }
  }
  // Parses an extent: a number or the name of a symbol. Exporters also write -1 and "?" for unknown
  // extents.
  static Dim Extent(std::string_view bytes) {
    Dim out;
    for (WireMessage message(bytes); message.Next();) {
      if (message.field() == OnnxDimField::kValue) {
        const int64_t value = message.Int();
        out = value < 0 ? Dim() : Dim(value);
      } else if (message.field() == OnnxDimField::kParam) {
        const std::string_view name = message.Bytes();
        out = name == "?" ? Dim() : Sym(std::string(name));
      }
    }
    return out;
  }

  OnnxNodeProto Node(std::string_view bytes, size_t index, int depth) {
    CountNode();
    OnnxNodeProto out;
    AtOnnxPlace([&] { return OnnxNodePlace(out, index); }, [&] { NodeInto(bytes, depth, out); });
    return out;
  }
  void NodeInto(std::string_view bytes, int depth, OnnxNodeProto& out) {
    std::vector<std::string_view> attributes;
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field == OnnxNodeField::kInput) {
        Append(message.String(), out.inputs, "inputs");
        model_.names.Add(out.inputs.back());
        model_.read.Add(out.inputs.back());
      }
      if (field == OnnxNodeField::kOutput) {
        Append(message.String(), out.outputs, "outputs");
        model_.names.Add(out.outputs.back());
      }
      if (field == OnnxNodeField::kName) out.name = message.String();
      if (field == OnnxNodeField::kOpType) out.type = message.String();
      if (field == OnnxNodeField::kAttribute)  // parsed below, when errors can name the node
        Append(message.Bytes(), attributes, "attributes");
      if (field == OnnxNodeField::kDomain) out.domain = Domain(message.Bytes());
      if (field == OnnxNodeField::kOverload) out.overload = message.String();
      if (field == OnnxNodeField::kMetadataProps) {
        auto [key, value] = ReadOnnxEntry(message.Bytes());
        if (key == kOnnxLibraryKey) out.library.name = std::move(value);
        if (key == kOnnxLibraryVersionKey) out.library.version = std::move(value);
      }
    }
    if (out.type.empty()) Throw(ErrorCode::kInvalidArgument, "it has no operator (op_type)");
    for (const OnnxOpset& opset : *opsets_)
      if (opset.domain == out.domain) out.opset = opset.version;
    NameIndex seen;
    for (const std::string_view attribute : attributes) {
      out.attributes.push_back(Attribute(attribute, depth));
      const std::string& name = out.attributes.back().name;
      if (seen.Find(name) >= 0)
        Throw(ErrorCode::kInvalidArgument, "it has the attribute '", name, "' twice");
      seen.Add(name);
    }
  }

  static std::string AttributeName(std::string_view bytes) {
    std::string out;
    for (WireMessage message(bytes); message.Next();)
      if (message.field() == OnnxAttributeField::kName) out = message.String();
    if (out.empty()) Throw(ErrorCode::kInvalidArgument, "an attribute of it has no name");
    return out;
  }
  void AttributeInto(std::string_view bytes, int depth, OnnxAttributeProto& out) {
    using Type = OnnxAttributeType;
    OnnxAttributeProto single;      // reads the fields f, i, s, t and g; `out` gets the lists
    Type found = Type::kUndefined;  // the type of the value, for old files without a type
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field >= OnnxAttributeField::kF && field <= OnnxAttributeField::kGraphs)
        found = static_cast<Type>(field - 1);
      OnnxAttributeProto& to = field <= OnnxAttributeField::kG ? single : out;
      if (field == OnnxAttributeField::kF || field == OnnxAttributeField::kFloats) {
        message.EachFloat([&](float value) { to.floats.push_back(value); });
      } else if (field == OnnxAttributeField::kI || field == OnnxAttributeField::kInts) {
        message.EachInt([&](int64_t value) { to.ints.push_back(value); });
      } else if (field == OnnxAttributeField::kS || field == OnnxAttributeField::kT ||
                 field == OnnxAttributeField::kStrings || field == OnnxAttributeField::kTensors) {
        to.bytes.push_back(message.Bytes());
      } else if (field == OnnxAttributeField::kG || field == OnnxAttributeField::kGraphs) {
        to.graphs.emplace_back();
        GraphInto(message.Bytes(), depth + 1, to.graphs.back());
      } else if (field == OnnxAttributeField::kType) {
        const int64_t type = message.Int();
        if (type < 0 || type > static_cast<int64_t>(Type::kTypeProtos))
          Throw(ErrorCode::kInvalidArgument, "its type ", type, " is none of ONNX's");
        out.type = static_cast<Type>(type);
      } else if (field == OnnxAttributeField::kRefAttrName) {
        out.ref = message.String();
      }
    }
    if (out.type == Type::kUndefined) out.type = found;
    if (out.ref.empty()) TakeSingle(std::move(single), out);
  }
  // Moves the single value to `out`. Writers may omit a number that is 0 and an empty string.
  static void TakeSingle(OnnxAttributeProto single, OnnxAttributeProto& out) {
    const auto take = [&](auto list, auto... fallback) {
      if ((single.*list).empty()) ((single.*list).push_back(fallback), ...);
      if ((single.*list).size() != 1)
        Throw(ErrorCode::kInvalidArgument, "it should have one value of its type, found ",
              (single.*list).size());
      out.*list = std::move(single.*list);
    };
    using Type = OnnxAttributeType;
    if (out.type == Type::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "it has neither a type nor a value");
    if (out.type == Type::kFloat) take(&OnnxAttributeProto::floats, 0.f);
    if (out.type == Type::kInt) take(&OnnxAttributeProto::ints, int64_t{0});
    if (out.type == Type::kString) take(&OnnxAttributeProto::bytes, std::string_view());
    if (out.type == Type::kTensor) take(&OnnxAttributeProto::bytes);
    if (out.type == Type::kGraph) take(&OnnxAttributeProto::graphs);
  }

  void Function(std::string_view bytes) {
    OnnxFunctionProto out;
    std::vector<std::string_view> defaults;
    for (WireMessage message(bytes); message.Next();) {
      const int field = message.field();
      if (field == OnnxFunctionField::kName) out.name = message.String();
      if (field == OnnxFunctionField::kInput) Append(message.String(), out.inputs, "inputs");
      if (field == OnnxFunctionField::kOutput) {
        Append(message.String(), out.outputs, "outputs");
        model_.read.Add(out.outputs.back());
      }
      if (field == OnnxFunctionField::kNode) out.nodes.push_back(message.Bytes());
      if (field == OnnxFunctionField::kOpsetImport) out.opsets.push_back(Opset(message.Bytes()));
      if (field == OnnxFunctionField::kDomain) out.domain = Domain(message.Bytes());
      if (field == OnnxFunctionField::kAttributeProto)
        Append(message.Bytes(), defaults, "attributes");
      if (field == OnnxFunctionField::kOverload) out.overload = message.String();
    }
    AtOnnxPlace("function", out.name, [&] {
      for (const std::string_view value : defaults)
        out.defaults.push_back({AttributeName(value), value});
    });
    model_.functions.push_back(std::move(out));
  }

  template <class T>
  static void Append(T item, std::vector<T>& list, const char* what) {
    list.push_back(std::move(item));
    if (list.size() > kMaxOnnxNames)
      Throw(ErrorCode::kUnsupported, "it has more than ", kMaxOnnxNames, " ", what);
  }

  const OnnxOptions& options_;
  OnnxModelProto& model_;
  const std::vector<OnnxOpset>* opsets_ = nullptr;  // opsets of the model or function being read
  int64_t num_nodes_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_PROTO_READER_HPP_
