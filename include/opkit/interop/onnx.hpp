// ONNX models become graphs: LoadOnnx(path). Third-party (protozero): included by name, in the
// translation unit that loads. Operators are those that the program registers; weights are used
// where they lie in the file.
#ifndef OPKIT_INTEROP_ONNX_HPP_
#define OPKIT_INTEROP_ONNX_HPP_

#include "opkit/interop/onnx/options.hpp"

namespace opkit::inline OPKIT_ABI {

// A model out of the bytes of a ModelProto; the graph keeps nothing of them. What it says:
// - initializers and Constant nodes are constants; inputs that are initializers too are none
// - `dim_param` is a symbol of that name; a negative or missing extent and "?" are unknown
// - nodes of opsets 7 to 20 are rewritten to opset 21; those of 22 to 27 are the same, or an Error
// - a node of another domain is answered by the operator "<domain>.<type>", else by "<type>"
// - a graph inside a node (If, Loop) reads nothing of the graphs around it: constants are added to
//   it, other values are its inputs (after its own, by their names), and the node reads them after
//   its own inputs and lists them in its attribute `captures`
// - functions of the model are written out
// `external_dir` is the folder of external data; without one such data is an Error.
//
// Errors name the node or tensor: kNotFound for an operator that is not registered (with the
// nearest that is) or a missing file; kUnsupported for strings, sparse tensors, float8 and int4,
// values that are no tensors, an opset that is not read; kInvalidArgument for everything that is
// not ONNX, be it damaged or hostile.
OnnxModel ParseOnnxModel(std::string_view bytes, const OnnxOptions& options = {},
                         std::string external_dir = {});

// The same out of a file, which is mapped: weights that lie aligned are used in place and read from
// disk when they are first touched, so the file must stay as it is while a tensor of it lives.
// External data is looked for in the file's folder. Errors begin with the path.
//
//   const OnnxModel model = LoadOnnxModel("model.onnx");
//   auto plan = Compile(model.graph);
OnnxModel LoadOnnxModel(const std::string& path, const OnnxOptions& options = {});
inline Graph LoadOnnx(const std::string& path, const OnnxOptions& options = {}) {
  return LoadOnnxModel(path, options).graph;
}

}  // namespace opkit

#ifndef OPKIT_EXTERN_ONNX  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
#include "opkit/interop/onnx/load.hpp"
#endif

#endif  // OPKIT_INTEROP_ONNX_HPP_
