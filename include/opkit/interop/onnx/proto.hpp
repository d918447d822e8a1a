// An ONNX file as a tree, which OnnxProtoReader makes and OnnxGraphBuilder reads. Graphs, nodes and
// attributes are parsed; tensors are still bytes. The tree has views of the file's bytes, which
// must outlive it.
#ifndef OPKIT_INTEROP_ONNX_PROTO_HPP_
#define OPKIT_INTEROP_ONNX_PROTO_HPP_

#include "opkit/base/index.hpp"
#include "opkit/interop/onnx/options.hpp"
#include "opkit/interop/onnx/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The largest number of inputs, outputs or attributes of a node or function, and of outputs of a
// graph: small enough for linear search.
inline constexpr size_t kMaxOnnxNames = 16384;

// AttributeProto.AttributeType, with its numbers in the file. A value of type n, up to kGraphs, is
// in field n + 1 of AttributeProto.
enum class OnnxAttributeType : uint8_t {
  kUndefined,
  kFloat,
  kInt,
  kString,
  kTensor,
  kGraph,
  kFloats,
  kInts,
  kStrings,
  kTensors,
  kGraphs,
  kSparseTensor,
  kSparseTensors,
  kTypeProto,
  kTypeProtos,
};

// A message of which only the name is parsed yet.
struct OnnxUnparsed {
  std::string name;
  std::string_view message;
};

// A ValueInfoProto: an input, an output or another value with its type.
struct OnnxValueProto {
  std::string name;
  int64_t type = 0;        // the element type of the tensor, or of the tensors in a sequence
  const char* other = "";  // the kind of a value that opkit does not have: "a map"
  DType container = DType::kUndefined;  // kSequence or kOptional
  bool holds_sequence = false;          // the optional value holds a sequence
  SymbolicShape shape;

  // Returns the type as far as the file gives it. The shape of the tensors in a sequence or an
  // optional value is not part of it.
  TensorInfo info(DType element) const {
    TensorInfo out(container == DType::kUndefined ? element : container, SymbolicShape());
    if (container == DType::kUndefined) {
      out.shape = shape;
    } else {
      out.shape = SymbolicShape(std::vector<Dim>{Dim()});
      out.element = element;
      out.holds_sequence = holds_sequence;
    }
    return out;
  }
};

struct OnnxGraphProto;

// An attribute. A single value is a list of one element.
struct OnnxAttributeProto {
  std::string name;
  std::string ref;  // if not empty: the value comes from this attribute of the function call
  OnnxAttributeType type = OnnxAttributeType::kUndefined;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> bytes;  // strings or TensorProto messages
  std::vector<OnnxGraphProto> graphs;
};

// Keys in a node's metadata_props for the library of its operator.
inline constexpr const char* kOnnxLibraryKey = "opkit.library";
inline constexpr const char* kOnnxLibraryVersionKey = "opkit.library_version";
struct OnnxNodeLibrary {
  std::string name, version;  // empty: not in the file
};

// The prefix of keys in a body's metadata_props. The key is this prefix and a value's name in the
// file; the entry's value is its original name. The writer changes a name if a graph around the
// body has the same name.
inline constexpr const char kOnnxNameKey[] = "opkit.name.";

struct OnnxNodeProto {
  std::string name;
  std::string type;
  std::string domain;  // "" for "ai.onnx"
  std::string overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttributeProto> attributes;
  int64_t opset = 0;  // version of its domain
  OnnxNodeLibrary library;
};

struct OnnxGraphProto {
  std::string name;
  std::vector<OnnxNodeProto> nodes;
  std::vector<OnnxUnparsed> initializers;  // TensorProtos
  std::vector<OnnxValueProto> inputs, outputs, values;
};

// A function of the model. Its nodes and defaults are parsed for every call.
struct OnnxFunctionProto {
  std::string name;
  std::string domain;
  std::string overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxUnparsed> defaults;  // AttributeProtos: the defaults of its attributes
  std::vector<std::string_view> nodes;
  std::vector<OnnxOpset> opsets;
};

struct OnnxModelProto {
  OnnxModel about;  // the model without its graph
  OnnxGraphProto graph;
  std::vector<OnnxFunctionProto> functions;
  NameIndex names;  // names of all values in the model
  NameIndex read;   // names of values that a node reads or a graph returns
};

// Returns "node 'conv1' (Conv)", or "node 3 (Conv)" for a node without a name.
inline std::string OnnxNodePlace(const OnnxNodeProto& node, size_t index) {
  const std::string type = node.domain.empty() ? node.type : StrCat(node.domain, ".", node.type);
  return node.name.empty() ? StrCat("node ", index, " (", type, ")")
                           : StrCat("node '", node.name, "' (", type, ")");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_PROTO_HPP_
