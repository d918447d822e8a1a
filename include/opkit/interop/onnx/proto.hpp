// An ONNX file as a tree: graphs, nodes and attributes by name, tensors as the bytes they are. It
// views the file's bytes, which must outlive it.
#ifndef OPKIT_INTEROP_ONNX_PROTO_HPP_
#define OPKIT_INTEROP_ONNX_PROTO_HPP_

#include "opkit/interop/onnx/options.hpp"
#include "opkit/interop/onnx/tensor.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Of a node or graph; what looks names up in these lists may do so one by one.
inline constexpr size_t kMaxOnnxNames = 16384;

// AttributeProto.AttributeType.
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

// A single value is a list of one.
struct OnnxAttributeProto {
  std::string name;
  std::string ref;  // an attribute of the function around, whose value is meant
  OnnxAttributeType type = OnnxAttributeType::kUndefined;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> bytes;  // strings or TensorProto messages
  std::vector<OnnxGraphProto> graphs;
};

struct OnnxNodeProto {
  std::string name;
  std::string type;
  std::string domain;  // "" for "ai.onnx"
  std::string overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttributeProto> attributes;
  int64_t opset = 0;  // of its domain
};

struct OnnxGraphProto {
  std::string name;
  std::vector<OnnxNodeProto> nodes;
  std::vector<OnnxTensorProto> initializers;
  std::vector<OnnxValueProto> inputs, outputs, values;
};

// An attribute as the bytes it is.
struct OnnxDefaultProto {
  std::string name;
  std::string_view message;
};

// Its nodes and defaults are read anew for every call.
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
  OnnxModel about;  // all but its graph
  OnnxGraphProto graph;
  std::vector<OnnxFunctionProto> functions;
  NameIndex names;  // of every value in the model
  NameIndex read;   // those that a node reads or a graph returns
};

// "node 'conv1' (Conv)", or "node 3 (Conv)" for one without a name.
OPKIT_COLD inline std::string OnnxNodePlace(const OnnxNodeProto& node, size_t index) {
  const std::string type = node.domain.empty() ? node.type : StrCat(node.domain, ".", node.type);
  return node.name.empty() ? StrCat("node ", index, " (", type, ")")
                           : StrCat("node '", node.name, "' (", type, ")");
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_PROTO_HPP_
