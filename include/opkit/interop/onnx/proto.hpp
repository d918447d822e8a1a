// An ONNX file as a tree: graphs, nodes and attributes are parsed, tensors are still bytes. The
// tree has views of the file's bytes, which must outlive it.
#ifndef OPKIT_INTEROP_ONNX_PROTO_HPP_
#define OPKIT_INTEROP_ONNX_PROTO_HPP_

#include "opkit/base/index.hpp"
#include "opkit/interop/onnx/options.hpp"
#include "opkit/interop/onnx/tensor.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Most inputs, outputs or attributes of a node or graph: few enough to search them one by one.
inline constexpr size_t kMaxOnnxNames = 16384;

// AttributeProto.AttributeType, by its numbers in the file. A value of type n, up to kGraphs, is in
// field n + 1 of AttributeProto.
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

struct OnnxTensorProto {
  std::string name;
  std::string_view message;
};

struct OnnxValueProto {
  std::string name;
  int64_t type = 0;        // element type of a tensor
  const char* other = "";  // what it is if not a tensor: "a sequence"
  SymbolicShape shape;
};

struct OnnxGraphProto;

// A single value is a list of one element.
struct OnnxAttributeProto {
  std::string name;
  std::string ref;  // not empty: the value is that of this attribute of the function call
  OnnxAttributeType type = OnnxAttributeType::kUndefined;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> bytes;  // strings or TensorProto messages
  std::vector<OnnxGraphProto> graphs;
};

// The library that a node's operator came from, as the node's metadata_props say.
inline constexpr const char* kOnnxLibraryKey = "opkit.library";
inline constexpr const char* kOnnxLibraryVersionKey = "opkit.library_version";
struct OnnxNodeLibrary {
  std::string name, version;  // empty: the file does not say
};

// Before a name in the file, as a key in a body's metadata_props: the value is the name that the
// writer had to change, as a graph around the body has it too.
inline constexpr const char kOnnxNameKey[] = "opkit.name.";

struct OnnxNodeProto {
  std::string name;
  std::string type;
  std::string domain;  // "" for "ai.onnx"
  std::string overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttributeProto> attributes;
  int64_t opset = 0;  // of its domain
  OnnxNodeLibrary library;
};

struct OnnxGraphProto {
  std::string name;
  std::vector<OnnxNodeProto> nodes;
  std::vector<OnnxTensorProto> initializers;
  std::vector<OnnxValueProto> inputs, outputs, values;
};

// The default of a function's attribute: an AttributeProto, not parsed yet.
struct OnnxDefaultProto {
  std::string name;
  std::string_view message;
};

// A model-local function. Its nodes and defaults are parsed anew for every call.
struct OnnxFunctionProto {
  std::string name;
  std::string domain;
  std::string overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxDefaultProto> defaults;
  std::vector<std::string_view> nodes;
  std::vector<OnnxOpset> opsets;
};

struct OnnxModelProto {
  OnnxModel about;  // everything but the graph
  OnnxGraphProto graph;
  std::vector<OnnxFunctionProto> functions;
  NameIndex names;  // of every value in the model
  NameIndex read;   // of values that a node reads or a graph returns
};

// "node 'conv1' (Conv)", or "node 3 (Conv)" for one without a name.
inline std::string OnnxNodePlace(const OnnxNodeProto& node, size_t index) {
  const std::string type = node.domain.empty() ? node.type : StrCat(node.domain, ".", node.type);
  return node.name.empty() ? StrCat("node ", index, " (", type, ")")
                           : StrCat("node '", node.name, "' (", type, ")");
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_PROTO_HPP_
