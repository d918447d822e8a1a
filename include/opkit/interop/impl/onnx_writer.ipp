// The definitions of interop/onnx_writer.hpp.
#ifndef OPKIT_INTEROP_IMPL_ONNX_WRITER_IPP_
#define OPKIT_INTEROP_IMPL_ONNX_WRITER_IPP_

#include <algorithm>
#include <cmath>
#include <protozero/pbf_writer.hpp>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/interop/onnx/opset.hpp"
#include "opkit/interop/onnx_writer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The IR version of the ONNX release with opset 21. Models with later opsets may have it, too.
inline constexpr int64_t kOnnxIrVersion = 10;
// The largest size of a protocol buffer, 2 GiB - 1.
inline constexpr int64_t kMaxOnnxBytes = (int64_t{1} << 31) - 1;

// An argument that opkit adds to a standard operator of ONNX, and its harmless values.
struct OnnxExtension {
  const char* type;
  const char* argument;
  bool (*is_harmless)(const Attribute& value);
  bool is_dropped;  // ONNX does not know the argument, even with a harmless value
};
inline constexpr OnnxExtension kOnnxExtensions[] = {
    {"BatchNormalization", "spatial",
     [](const Attribute& value) { return value == Attribute(int64_t{1}); }, true},
    {"Resize", "nearest_mode", [](const Attribute& value) { return value != Attribute("simple"); },
     false},
};

// Throws kUnsupported if bodies are nested deeper than the reader accepts. Runs first, because the
// other functions recurse into bodies.
inline void CheckOnnxDepth(const Graph& graph, int depth = 0) {
  if (depth > kMaxOnnxDepth)
    Throw(ErrorCode::kUnsupported, "its bodies are nested more than ", kMaxOnnxDepth,
          " deep, and OnnxOptions::max_subgraph_depth lets no deeper model be read again; save it "
          "with SaveGraphJson");
  for (const OperatorDef& def : graph.nodes())
    for (const NamedSubgraph& subgraph : def.subgraphs())
      if (const Graph* inner = GraphOf(*subgraph.graph)) CheckOnnxDepth(*inner, depth + 1);
}

// Returns the names under which a node's bodies read its last inputs.
inline std::vector<std::string> OnnxCapturesOf(const OperatorDef& def) {
  if (def.subgraphs().empty() || !def.args().Find("captures")) return {};
  auto captures = def.args().Get<std::vector<std::string>>("captures");
  if (captures.size() > def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "its attribute 'captures' names ", captures.size(),
          " values, but it reads ", def.inputs().size());
  return captures;
}

// True if every body reads outer values by the names that they have outside. Only then can the
// reader restore changed names graph by graph.
inline bool KeepOuterNames(const Graph& graph) {
  for (const OperatorDef& def : graph.nodes()) {
    std::vector<std::string> captures;
    AtOnnxPlace([&] { return StrCat("node ", def); }, [&] { captures = OnnxCapturesOf(def); });
    if (!std::equal(captures.rbegin(), captures.rend(), def.inputs().rbegin())) return false;
    for (const NamedSubgraph& subgraph : def.subgraphs())
      if (const Graph* inner = GraphOf(*subgraph.graph); inner && !KeepOuterNames(*inner))
        return false;
  }
  return true;
}

// The state that the graphs of a model share.
struct OnnxWriteContext {
  const OnnxWriteOptions& options;
  NameIndex names;  // names of all values of the model
  std::vector<std::string> domains;
  bool puts_names_back = false;  // the file records the names that the writer changes
  int64_t num_fresh = 0;

  void CollectNames(const Graph& graph) {
    for (const Graph::Input& input : graph.inputs()) names.Add(input.name);
    for (const Graph::Constant& constant : graph.constants()) names.Add(constant.name);
    for (const OperatorDef& def : graph.nodes()) {
      for (const std::string& name : def.outputs()) names.Add(name);
      for (const NamedSubgraph& subgraph : def.subgraphs())
        if (const Graph* inner = GraphOf(*subgraph.graph)) CollectNames(*inner);
    }
  }
  // Returns a name that no value of the model has.
  std::string FreshName(const std::string& hint) {
    std::string name;
    do name = StrCat(hint, "_", ++num_fresh);
    while (names.Find(name) >= 0);
    names.Add(name);
    return name;
  }
  void UseDomain(const std::string& domain) {
    if (!Contains(domains, domain)) domains.push_back(domain);
  }
  int64_t VersionOf(const std::string& domain) const {
    if (domain.empty()) return options.opset;
    for (const OnnxOpset& known : options.domain_versions)
      if (known.domain == domain) return known.version;
    return domain == "ai.onnx.ml" ? 5 : 1;
  }
};

// An input of a body that is a value of the graph around it: its name in the body, and `written`,
// its name in the file.
struct OnnxCapture {
  std::string name;
  std::string written;
  int outer;  // the value's number in the graph around
};

// Writes a graph as a GraphProto. For each body of a node it makes another writer.
class OnnxGraphWriter {
 public:
  OnnxGraphWriter(OnnxWriteContext& context, const Graph& graph,
                  const OnnxGraphWriter* around = nullptr,
                  const std::vector<OnnxCapture>& captures = {})
      : context_(context), graph_(graph), view_(graph), around_(around) {
    written_.resize(Index(view_.num_values()));
    is_outer_.resize(written_.size());
    for (int value = 0; value < view_.num_values(); ++value) NameValue(value, captures);
  }

  void Write(protozero::pbf_writer to, const std::string& name) {
    for (const int node : view_.order())
      AtOnnxPlace(
          [&] { return StrCat("node ", graph_.node(node)); },
          [&] { Node(protozero::pbf_writer(to, OnnxGraphField::kNode), graph_.node(node)); });
    std::vector<std::string> outputs;
    for (const int value : view_.outputs()) outputs.push_back(Output(to, value));
    to.add_string(OnnxGraphField::kName, name);
    for (int value = 0; value < view_.num_values(); ++value)
      if (const Tensor* data = ConstantOrDefault(value); data && !is_outer_[Index(value)])
        AtOnnxPlace(view_.IsInput(value) ? "default" : "constant", view_.name(value), [&] {
          Write(protozero::pbf_writer(to, OnnxGraphField::kInitializer), *data,
                written_[Index(value)]);
        });
    for (int value = 0; view_.IsInput(value); ++value)
      if (!is_outer_[Index(value)])
        Write(protozero::pbf_writer(to, OnnxGraphField::kInput), written_[Index(value)],
              graph_.inputs()[Index(value)].info);
    const GraphTypes types = Infer();
    for (size_t i = 0; i < outputs.size(); ++i)
      Write(protozero::pbf_writer(to, OnnxGraphField::kOutput), outputs[i],
            types[view_.outputs()[i]]);
    for (const auto& [value, dtype] : captured_) {
      const SymbolicShape& shape = types[value].shape;
      if (around_ || shape.has_rank())  // ONNX requires at least the rank, except in bodies
        Write(protozero::pbf_writer(to, OnnxGraphField::kValueInfo), Written(value),
              TensorInfo(dtype, shape));
    }
    for (int value = 0; context_.puts_names_back && value < view_.num_values(); ++value)
      if (const std::string& written = written_[Index(value)];
          !is_outer_[Index(value)] && written != view_.name(value))
        Metadata(to, OnnxGraphField::kMetadataProps, kOnnxNameKey + written, view_.name(value));
  }

  static void Write(protozero::pbf_writer to, const Tensor& tensor, const std::string& name = "") {
    if (tensor.dtype() == DType::kUndefined)
      Throw(ErrorCode::kUninitialized, "tensor ", ToString(tensor), " has no data to write");
    if (!IsHostAccessible(tensor.device().type))
      Throw(ErrorCode::kUnsupported, "tensor ", ToString(tensor),
            " is not reachable from the host; copy it to the cpu first");
    const Tensor dense = tensor.is_dense() && tensor.initialized() && tensor.layout().is_standard()
                             ? tensor
                             : tensor.Contiguous();  // throws the reason if it cannot copy
    for (const int64_t extent : dense.shape()) to.add_int64(OnnxTensorField::kDims, extent);
    to.add_int32(OnnxTensorField::kDataType, static_cast<int32_t>(OnnxNumberOf(dense.dtype())));
    if (!name.empty()) to.add_string(OnnxTensorField::kName, name);
    if (dense.dtype() == DType::kString) {
      const auto* strings = dense.data<std::string>();
      for (int64_t i = 0; i < dense.numel(); ++i)
        to.add_string(OnnxTensorField::kStringData, strings[i]);
      return;
    }
    if (IsObject(dense.dtype()))
      Throw(ErrorCode::kUnsupported, "tensor ", ToString(tensor),
            " is no TensorProto; ONNX has no constants of this kind");
    const auto bytes = static_cast<size_t>(dense.nbytes());
    to.add_bytes(OnnxTensorField::kRawData, bytes ? static_cast<const char*>(dense.raw_data()) : "",
                 bytes);
  }

 private:
  // Returns the tensor of an initializer; null for a value that is none. ONNX writes the default of
  // an input as an initializer of the same name.
  const Tensor* ConstantOrDefault(int value) const {
    if (!view_.IsInput(value)) return view_.constant(value);
    const Graph::Input& input = graph_.inputs()[Index(value)];
    return input.has_default() ? &input.default_value : nullptr;
  }
  // True if the graph, or a graph around it, has a value of that name in the file.
  bool Has(const std::string& written) const {
    return all_written_.Find(written) >= 0 || (around_ && around_->Has(written));
  }
  // Returns the name in the file of the same constant in a graph around this one; null if there is
  // none.
  const std::string* OuterConstant(const std::string& name, const Tensor& value) const {
    for (const OnnxGraphWriter* outer = around_; outer; outer = outer->around_)
      if (const Tensor* constant = outer->graph_.FindConstant(name))
        return Attribute(*constant) == value ? &outer->written_[Index(outer->view_.FindValue(name))]
                                             : nullptr;
      else if (outer->graph_.HasValue(name))
        return nullptr;
    return nullptr;
  }
  // Sets the name of a value in the file.
  void NameValue(int value, const std::vector<OnnxCapture>& captures) {
    const std::string& name = view_.name(value);
    std::string& written = written_[Index(value)];
    written = name;
    if (view_.IsInput(value))
      for (const OnnxCapture& capture : captures)
        if (capture.name == name) {
          written = capture.written;
          is_outer_[Index(value)] = 1;
        }
    if (const Tensor* constant = view_.constant(value))
      if (const std::string* outer = OuterConstant(name, *constant)) {
        written = *outer;
        is_outer_[Index(value)] = 1;
      }
    if (is_outer_[Index(value)]) return;
    if (around_ && around_->Has(name)) written = context_.FreshName(name);
    all_written_.Add(written);
  }
  std::string Written(int value) const {
    return value < 0 ? std::string() : written_[Index(value)];
  }

  void Node(protozero::pbf_writer to, const OperatorDef& def) {
    if (!def.control_inputs().empty())
      Throw(ErrorCode::kUnsupported, "it must run after '", def.control_inputs()[0],
            "', a control input, which ONNX has none of");
    ForEachRewritten(def, [&](const std::string& name) {
      Throw(ErrorCode::kUnsupported, "it rewrites '", name,
            "', but in ONNX every value is made once; give the result a name of its own");
    });
    const std::vector<std::string> captures = OnnxCapturesOf(def);
    const size_t num_inputs = def.inputs().size() - captures.size();
    for (size_t i = 0; i < num_inputs; ++i)
      to.add_string(OnnxNodeField::kInput, Written(view_.FindValue(def.inputs()[i])));
    for (const std::string& name : def.outputs())
      to.add_string(OnnxNodeField::kOutput, Written(view_.FindValue(name)));
    if (!def.name().empty()) to.add_string(OnnxNodeField::kName, def.name());
    std::string type = def.type();
    const std::string domain = SplitDomain(type);
    context_.UseDomain(domain);
    to.add_string(OnnxNodeField::kOpType, type);
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    for (const NamedAttribute& arg : def.args())
      AtOnnxPlace("attribute", arg.name, [&] {
        if (arg.name == "captures" && !def.subgraphs().empty()) return;
        if (!IsWritten(def, arg)) return;
        const AttributeSchema* declared = schema ? schema->FindAttribute(arg.name) : nullptr;
        const NamedAttribute written{arg.name,
                                     declared ? AsDeclared(arg.value, *declared) : arg.value};
        Write(protozero::pbf_writer(to, OnnxNodeField::kAttribute), written);
      });
    std::vector<OnnxCapture> outer;
    for (size_t i = 0; i < captures.size(); ++i) {
      const int value = view_.FindValue(def.inputs()[num_inputs + i]);
      outer.push_back({captures[i], Written(value), value});
    }
    for (const NamedSubgraph& subgraph : def.subgraphs())
      AtOnnxPlace("subgraph", subgraph.name, [&] {
        Write(protozero::pbf_writer(to, OnnxNodeField::kAttribute), def, subgraph, outer);
      });
    if (!domain.empty()) to.add_string(OnnxNodeField::kDomain, domain);
    if (schema && !schema->library_name().empty()) {
      Metadata(to, OnnxNodeField::kMetadataProps, kOnnxLibraryKey, schema->library_name());
      if (!schema->library_version().empty())
        Metadata(to, OnnxNodeField::kMetadataProps, kOnnxLibraryVersionKey,
                 schema->library_version());
    }
  }
  static void Metadata(protozero::pbf_writer& to, protozero::pbf_tag_type field,
                       const std::string& key, const std::string& value) {
    protozero::pbf_writer entry(to, field);
    entry.add_string(OnnxEntryField::kKey, key);
    entry.add_string(OnnxEntryField::kValue, value);
  }
  // Converts a value to the type that the operator declares, because ONNX's checker compares types:
  // 1 becomes 1.0 for a floating-point attribute.
  static Attribute AsDeclared(const Attribute& value, const AttributeSchema& declared) {
    if (declared.type == AttributeType::kFloat && value.Is<int64_t>()) return value.Get<double>();
    if (declared.type == AttributeType::kFloats && value.ReadsAs(AttributeType::kFloats))
      return value.Get<std::vector<double>>();
    if (declared.type == AttributeType::kInts && value.is_list() && value.size() == 0)
      return std::vector<int64_t>();
    if (declared.type == AttributeType::kStrings && value.is_list() && value.size() == 0)
      return std::vector<std::string>();
    return value;
  }
  // Returns the domain of an operator type and removes it from `type`.
  std::string SplitDomain(std::string& type) const {
    const OpSchema* schema = OpRegistry::Global().FindSchema(type);
    if (schema && schema->is_standard()) return "";
    const size_t dot = type.rfind('.');
    if (dot != std::string::npos && dot > 0 && dot + 1 < type.size() &&
        type.compare(0, dot, "ai.onnx") != 0) {
      std::string domain = type.substr(0, dot);
      type.erase(0, dot + 1);
      return domain;
    }
    const bool known = schema || !OpRegistry::Global().KernelsOf(type).empty();
    return known ? context_.options.domain : "";
  }

  // False if ONNX's operator lacks the argument. Throws kUnsupported for a value that ONNX's
  // operator does not support.
  static bool IsWritten(const OperatorDef& def, const NamedAttribute& arg) {
    for (const OnnxExtension& extension : kOnnxExtensions) {
      if (def.type() != extension.type || arg.name != extension.argument) continue;
      if (!extension.is_harmless(arg.value))
        Throw(ErrorCode::kUnsupported, "ONNX's ", def.type(), " has no ", arg.name, " = ",
              arg.value);
      return !extension.is_dropped;
    }
    return true;
  }
  static void Begin(protozero::pbf_writer& to, const std::string& name, OnnxAttributeType type) {
    if (name.empty()) Throw(ErrorCode::kInvalidArgument, "it has no name");
    to.add_string(OnnxAttributeField::kName, name);
    to.add_int32(OnnxAttributeField::kType, static_cast<int32_t>(type));
  }
  static float Float(double value) {
    const auto nearest = static_cast<float>(value);
    if (std::isinf(nearest) && !std::isinf(value))
      Throw(ErrorCode::kUnsupported, "its value ", value,
            " is beyond float32, the only floating-point type of ONNX's attributes");
    return nearest;
  }
  static void Write(protozero::pbf_writer to, const NamedAttribute& arg) {
    using Type = OnnxAttributeType;
    const Attribute::Values& values = arg.value.values();
    std::vector<float> floats;
    for (const double value : values.floats) floats.push_back(Float(value));
    const auto begin = [&](Type type) { Begin(to, arg.name, type); };
    switch (arg.value.type()) {
      case AttributeType::kFloat:
        return begin(Type::kFloat), to.add_float(OnnxAttributeField::kF, floats[0]);
      case AttributeType::kInt:
      case AttributeType::kBool:
        return begin(Type::kInt), to.add_int64(OnnxAttributeField::kI, values.ints[0]);
      case AttributeType::kString:
        return begin(Type::kString), to.add_bytes(OnnxAttributeField::kS, values.strings[0]);
      case AttributeType::kTensor:
        return begin(Type::kTensor),
               Write(protozero::pbf_writer(to, OnnxAttributeField::kT), values.tensors[0]);
      case AttributeType::kFloats:
        begin(Type::kFloats);
        return to.add_packed_float(OnnxAttributeField::kFloats, floats.begin(), floats.end());
      case AttributeType::kInts:
      case AttributeType::kBools:
        begin(Type::kInts);
        return to.add_packed_int64(OnnxAttributeField::kInts, values.ints.begin(),
                                   values.ints.end());
      case AttributeType::kStrings:
        begin(Type::kStrings);
        for (const std::string& value : values.strings)
          to.add_bytes(OnnxAttributeField::kStrings, value);
        return;
      case AttributeType::kTensors:
        begin(Type::kTensors);
        for (const Tensor& value : values.tensors)
          Write(protozero::pbf_writer(to, OnnxAttributeField::kTensors), value);
        return;
    }
  }
  void Write(protozero::pbf_writer to, const OperatorDef& def, const NamedSubgraph& subgraph,
             const std::vector<OnnxCapture>& captures) {
    const Graph* inner = GraphOf(*subgraph.graph);
    if (!inner) Throw(ErrorCode::kUnsupported, "it is no Graph, but ", subgraph.graph->Describe());
    if (def.args().Has(subgraph.name))
      Throw(ErrorCode::kInvalidArgument,
            "an attribute has that name too, and in ONNX subgraphs are attributes");
    for (const OnnxCapture& capture : captures)
      if (const Graph::Input* input = inner->FindInput(capture.name))
        Know(capture.outer, input->info.dtype);
    Begin(to, subgraph.name, OnnxAttributeType::kGraph);
    OnnxGraphWriter(context_, *inner, this, captures)
        .Write(protozero::pbf_writer(to, OnnxAttributeField::kG), subgraph.name);
  }
  // Records the dtype that a body expects of a node's output. It is written to the file, because
  // readers may not know the node's operator.
  void Know(int value, DType dtype) {
    if (value < 0 || view_.producer(value) < 0 || dtype == DType::kUndefined) return;
    for (const auto& known : captured_)
      if (known.first == value) return;
    captured_.emplace_back(value, dtype);
  }

  // Returns the name in the file of an output. ONNX lets a body return only its own values, so an
  // outer value is copied by an Identity node.
  std::string Output(protozero::pbf_writer& to, int value) {
    if (!is_outer_[Index(value)]) return Written(value);
    std::string copy = context_.FreshName(view_.name(value));
    protozero::pbf_writer node(to, OnnxGraphField::kNode);
    node.add_string(OnnxNodeField::kInput, Written(value));
    node.add_string(OnnxNodeField::kOutput, copy);
    node.add_string(OnnxNodeField::kOpType, "Identity");
    context_.UseDomain("");
    return copy;
  }
  // Returns the types of values as far as they are known. For a body returns none: its types follow
  // from the graph around it.
  GraphTypes Infer() const {
    if (around_) return GraphTypes(view_);
    try {
      return InferGraph(view_, {}, UnknownOperators::kAllowed);
    } catch (const Error&) {
      return GraphTypes(view_);  // compiling the graph reports the error
    }
  }
  static void Write(protozero::pbf_writer to, const std::string& name, const TensorInfo& info) {
    to.add_string(OnnxValueInfoField::kName, name);
    if (info.dtype == DType::kUndefined && !info.shape.has_rank()) return;
    if (!IsObject(info.dtype) || info.dtype == DType::kString) {
      protozero::pbf_writer type(to, OnnxValueInfoField::kType);
      return Write(type, info);
    }
    if (info.element == DType::kUndefined) return;
    std::string message;
    protozero::pbf_writer type(message);
    Write(type, TensorInfo(info.element, SymbolicShape()));
    if (info.dtype == DType::kSequence || info.holds_sequence)
      message = InContainer(OnnxTypeField::kSequence, message);
    if (info.dtype == DType::kOptional) message = InContainer(OnnxTypeField::kOptional, message);
    to.add_message(OnnxValueInfoField::kType, message);
  }
  // Returns the TypeProto of a sequence or an optional value whose element has the type `element`.
  static std::string InContainer(int kind, const std::string& element) {
    std::string inner, outer;
    protozero::pbf_writer(inner).add_message(OnnxContainerTypeField::kElemType, element);
    protozero::pbf_writer(outer).add_message(static_cast<protozero::pbf_tag_type>(kind), inner);
    return outer;
  }
  // Writes the TypeProto of a tensor.
  static void Write(protozero::pbf_writer& type, const TensorInfo& info) {
    std::string tensor;  // via a string, so that an empty message is written, too
    protozero::pbf_writer fields(tensor);
    if (info.dtype != DType::kUndefined)
      fields.add_int32(OnnxTensorTypeField::kElemType,
                       static_cast<int32_t>(OnnxNumberOf(info.dtype)));
    if (info.shape.has_rank()) {
      std::string shape;
      for (const Dim& dim : info.shape.dims()) {
        std::string extent;
        if (dim.is_known())
          protozero::pbf_writer(extent).add_int64(OnnxDimField::kValue, dim.value());
        if (dim.is_symbol())
          protozero::pbf_writer(extent).add_string(OnnxDimField::kParam, dim.symbol());
        protozero::pbf_writer(shape).add_message(OnnxShapeField::kDim, extent);
      }
      fields.add_message(OnnxTensorTypeField::kShape, shape);
    }
    type.add_message(OnnxTypeField::kTensor, tensor);
  }

  OnnxWriteContext& context_;
  const Graph& graph_;
  const GraphView view_;
  const OnnxGraphWriter* around_;
  std::vector<std::string> written_;  // by value: its name in the file
  std::vector<char> is_outer_;        // by value: true if an outer graph makes the value
  NameIndex all_written_;             // names of the values that this graph makes in the file
  std::vector<std::pair<int, DType>> captured_;  // outputs of nodes that bodies read
};

// Returns the number of bytes of all tensors of a graph: most of the model's size.
inline int64_t OnnxTensorBytes(const Graph& graph) {
  int64_t bytes = 0;
  const auto add = [&](const Tensor& tensor) {
    if (!IsObject(tensor.dtype())) bytes += tensor.nbytes();
    for (int64_t i = 0; tensor.dtype() == DType::kString && i < tensor.numel(); ++i)
      bytes += static_cast<int64_t>(tensor.data<std::string>()[i].size());
  };
  for (const Graph::Constant& constant : graph.constants()) add(constant.value);
  for (const Graph::Input& input : graph.inputs()) add(input.default_value);
  for (const OperatorDef& def : graph.nodes()) {
    for (const NamedAttribute& arg : def.args())
      for (const Tensor& tensor : arg.value.values().tensors) add(tensor);
    for (const NamedSubgraph& subgraph : def.subgraphs())
      if (const Graph* inner = GraphOf(*subgraph.graph)) bytes += OnnxTensorBytes(*inner);
  }
  return bytes;
}
inline void CheckOnnxSize(int64_t bytes) {
  if (bytes > kMaxOnnxBytes)
    Throw(ErrorCode::kUnsupported, "the model would have ", bytes,
          " bytes, and protocol buffers end at 2 GiB; save it with SaveGraphJson, or in parts");
}

}  // namespace detail

OPKIT_INLINE std::string ToOnnx(const Graph& graph, const OnnxWriteOptions& options) {
  constexpr int64_t kOperators = 21;  // the opset of opkit's operators
  if (options.opset < kOperators || options.opset > kMaxOnnxOpset)
    Throw(ErrorCode::kInvalidArgument, "OnnxWriteOptions::opset is ", options.opset,
          "; models are written with ", kOperators, " to ", kMaxOnnxOpset);
  if (options.domain.empty() || options.domain == "ai.onnx" || options.name.empty())
    Throw(ErrorCode::kInvalidArgument, options.name.empty()
                                           ? "OnnxWriteOptions::name is empty"
                                           : "OnnxWriteOptions::domain must not be ONNX's own");
  for (const OnnxOpset& opset : options.domain_versions)
    if (opset.domain.empty() || opset.version < 1)
      Throw(ErrorCode::kInvalidArgument, "OnnxWriteOptions::domain_versions says version ",
            opset.version, " of domain '", opset.domain,
            "'; expected a domain other than ONNX's own, whose version is `opset`, and 1 or more");
  detail::CheckOnnxDepth(graph);
  detail::CheckOnnxSize(detail::OnnxTensorBytes(graph));
  detail::OnnxWriteContext context{options, {}, {""}, detail::KeepOuterNames(graph)};
  context.CollectNames(graph);
  std::string out;
  protozero::pbf_writer model(out);
  model.add_int64(detail::OnnxModelField::kIrVersion, detail::kOnnxIrVersion);
  model.add_string(detail::OnnxModelField::kProducerName, "opkit");
  detail::OnnxGraphWriter(context, graph)
      .Write(protozero::pbf_writer(model, detail::OnnxModelField::kGraph), options.name);
  for (const std::string& domain : context.domains) {
    protozero::pbf_writer opset(model, detail::OnnxModelField::kOpsetImport);
    opset.add_string(detail::OnnxOpsetField::kDomain, domain);
    opset.add_int64(detail::OnnxOpsetField::kVersion, context.VersionOf(domain));
  }
  detail::CheckOnnxSize(static_cast<int64_t>(out.size()));
  return out;
}

OPKIT_INLINE void SaveOnnx(const Graph& graph, const std::string& path,
                           const OnnxWriteOptions& options) {
  const std::string bytes =
      detail::AtOnnxPlace([&] { return path; }, [&] { return ToOnnx(graph, options); });
  SaveFile(path, bytes);
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_ONNX_WRITER_IPP_
