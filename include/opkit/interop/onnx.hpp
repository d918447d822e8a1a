// LoadOnnx(path) makes a Graph of an ONNX model. The nodes run with the operators that the program
// registers; weights are used where they lie in the file. The definitions need protozero; with
// CMake the target opkit::onnx holds them.
#ifndef OPKIT_INTEROP_ONNX_HPP_
#define OPKIT_INTEROP_ONNX_HPP_

#include "opkit/interop/onnx/options.hpp"

namespace opkit::inline OPKIT_ABI {

// Makes a model of the bytes of a ModelProto, which are copied: they may go afterwards. The graph:
// - initializers and Constant nodes become constants; an input that is also an initializer is no
//   input of the graph
// - `dim_param` becomes a symbol of that name; a negative or missing extent and "?" are unknown
// - nodes of opsets 7 to 20 are rewritten to opset 21; nodes of opsets 22 to 27 are taken as they
// are
//   where their meaning is that of opset 21, and are an Error otherwise
// - a node of a domain other than ONNX's uses the operator "<domain>.<type>", else a "<type>" that
// is
//   no standard operator, or is one where OnnxOptions::standard_operators_in_any_domain allows it
// - a graph inside a node (If, Loop) sees no value of the graphs around it: constants it reads are
//   copied into it, other values become inputs (after its own, by their names), and the node reads
//   those after its own inputs and lists them in its attribute `captures`, which it does not have
//   where its graphs read none
// - calls of the model's functions are replaced by their bodies
// `external_dir` is the folder of external data; if it is empty, such data is an Error.
//
// Errors name the node or tensor: kNotFound for an operator that is not registered, with the
// nearest name that is (where nodes say by `opkit.library` in their metadata_props which library
// brought theirs, all that are missing in one Error), or a missing file; kUnsupported for strings,
// sparse tensors, float8 and int4, values other than tensors, an opset out of the range above;
// kInvalidArgument for bytes that are no valid ONNX model, damaged or hostile.
OnnxModel ParseOnnxModel(std::string_view bytes, const OnnxOptions& options = {},
                         std::string external_dir = {});

// The same for a file, which is mapped: aligned weights are used in place and read from disk when
// they are first touched, so the file must not change while a tensor of it lives. External data is
// read from the file's folder. Errors begin with the path.
//
//   const OnnxModel model = LoadOnnxModel("model.onnx");
//   auto plan = Compile(model.graph);
OnnxModel LoadOnnxModel(const std::string& path, const OnnxOptions& options = {});
inline Graph LoadOnnx(const std::string& path, const OnnxOptions& options = {}) {
  return LoadOnnxModel(path, options).graph;
}

// Reads one serialized TensorProto, such as the test data (*.pb) beside ONNX models, and copies its
// values. Errors begin with the tensor's name: kInvalidArgument for damaged bytes or values that do
// not match the shape, kUnsupported for an element type without a DType (string, float8, int4) and
// for external data.
Tensor ReadOnnxTensor(std::string_view tensor_proto_bytes);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/onnx.ipp"
#endif

#endif  // OPKIT_INTEROP_ONNX_HPP_
