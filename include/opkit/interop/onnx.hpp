// LoadOnnx(path) makes a Graph from an ONNX model. The nodes run with the operators that the
// program registers; weights are used in place in the mapped file. The definitions need protozero;
// with CMake the target opkit::onnx contains them.
#ifndef OPKIT_INTEROP_ONNX_HPP_
#define OPKIT_INTEROP_ONNX_HPP_

#include "opkit/interop/onnx/options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the model in the bytes of a ModelProto. The bytes are copied and may be freed afterwards.
// `external_dir` is the folder of external data; if it is empty, external data is an Error. The
// graph:
// - Initializers and Constant nodes become constants. An input that is also an initializer is an
//   input with this default, unless the file's version is below 4 or OnnxOptions::fix_defaults is
//   set.
// - A `dim_param` becomes a symbol of that name. A negative or missing extent and "?" are unknown.
// - Nodes of opsets 7 to 20 are rewritten to opset 21. Nodes of opsets 22 to 28 are taken unchanged
//   if they mean the same in opset 21, and are an Error otherwise.
// - A node of a domain other than ONNX's uses the operator "<domain>.<type>". If only "<type>" is
//   registered, the node uses that operator. A standard operator counts as registered here only if
//   OnnxOptions::standard_operators_in_any_domain is set.
// - A graph inside a node (If, Loop) sees no value of the graphs around it. Outer constants that it
//   reads are copied into it. Other outer values become inputs of the inner graph, by their names,
//   after its own inputs. The node reads these values after its own inputs and lists their names in
//   its attribute `captures`. A node whose graphs read no such values has no `captures`.
// - A ZipMap of ai.onnx.ml becomes an Identity: its output is the tensor of scores, because opkit
//   has no maps. OnnxModel::warnings gives the labels of the tensor's columns. With
//   OnnxOptions::zipmap_columns, each column is an output of its own.
// - Calls of the model's functions are replaced by the bodies of the functions.
//
// Errors name the node or tensor. Throws:
// - kIo for a file that cannot be read
// - kNotFound for an operator that is not registered, with the nearest
//   registered name. Nodes can name the library of their operator (`opkit.library` in
//   metadata_props); one Error names all such operators that are missing.
// - kUnsupported for sparse tensors, maps, and an opset out of the range above.
// - kInvalidArgument for bytes that are no valid ONNX model, damaged or hostile.
OnnxModel ParseOnnxModel(std::string_view bytes, const OnnxOptions& options = {},
                         std::string external_dir = {});

// Loads a model from a file, like ParseOnnxModel. The file is mapped: aligned weights are used in
// place and read from disk when they are first touched. So the file must not change while a tensor
// that uses it lives. External data is read from the file's folder. Errors begin with the path.
//
//   const OnnxModel model = LoadOnnxModel("model.onnx");
//   auto plan = Compile(model.graph);
OnnxModel LoadOnnxModel(const std::string& path, const OnnxOptions& options = {});
inline Graph LoadOnnx(const std::string& path, const OnnxOptions& options = {}) {
  return LoadOnnxModel(path, options).graph;
}

// Reads one serialized TensorProto, such as the test data (*.pb) beside ONNX models, and copies its
// values. Errors begin with the tensor's name. Throws kInvalidArgument for damaged bytes or values
// that do not match the shape. Throws kUnsupported for an element type without a DType (float8,
// int4) and for external data.
Tensor ReadOnnxTensor(std::string_view tensor_proto_bytes);

// Reads one serialized value of this type: a TensorProto, a SequenceProto or an OptionalProto. Such
// bytes do not say which of these they are; the graph's inputs do (Graph::Input::info). Errors as
// ReadOnnxTensor.
Tensor ReadOnnxValue(std::string_view bytes, const TensorInfo& type);

namespace detail {
// True for an operator, as "com.microsoft.Gelu", whose nodes the reader replaces by nodes of ONNX's
// own operators.
bool IsOnnxTypeReplaced(std::string_view type);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/onnx.ipp"
#endif

#endif  // OPKIT_INTEROP_ONNX_HPP_
