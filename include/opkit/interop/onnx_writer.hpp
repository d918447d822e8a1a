// SaveOnnx(graph, path) makes an ONNX model of a Graph, for the runtimes and tools that read those.
// The reader of interop/onnx.hpp makes the same graph of it again. The definitions need protozero;
// with CMake the target opkit::onnx holds them.
#ifndef OPKIT_INTEROP_ONNX_WRITER_HPP_
#define OPKIT_INTEROP_ONNX_WRITER_HPP_

#include "opkit/interop/onnx/options.hpp"
#include "opkit/ops/support/convert.hpp"

namespace opkit::inline OPKIT_ABI {

struct OnnxWriteOptions {
  // Of the operators that the program registers and that are none of ONNX's.
  std::string domain = "opkit";
  // The version of ONNX's own operators that the model says it uses. opkit's operators are those of
  // 21; a graph with operators of a later opset, which opkit lacks, may say so here. 21 to 27.
  int64_t opset = 21;
  // The versions of other domains, such as those of OnnxModel::opsets; 1 where none is said.
  std::vector<OnnxOpset> domain_versions = {};
  std::string name = "opkit";  // of the graph; not empty
};

// The bytes of a ModelProto. In the model:
// - inputs have the graph's dtypes and shapes: a symbol is a `dim_param`, an unknown extent is one
//   that the model says nothing of; outputs have what inference finds (onnx.checker wants the rank
//   of each, ONNX Runtime does not)
// - constants are initializers, with their bytes as raw data
// - nodes are in an order in which they can run; that of the graph if it is one
// - a node of type "com.microsoft.Gelu" is of that domain and the type "Gelu". Others are of ONNX's
//   domain where the operator is a standard one, or is not registered here, else of
//   OnnxWriteOptions::domain
// - a bool attribute is the integer 0 or 1, which ONNX has instead; floating-point attributes are
//   rounded to float32; an integer that is given for one that the operator declares as
//   floating-point is written as such a number
// - a body (of If, of Loop) reads values of the graphs around it, as the node's attribute
//   `captures` says, by their names there, with the types that inference finds; one that returns
//   such a value gets an Identity; empty `captures` are left out. Values of its own get other names
//   where a graph around it has theirs, as ONNX demands; the body's metadata_props say which they
//   had (`opkit.name.` and the name in the file), and ParseOnnxModel gives them back. They do not
//   where a body calls a value around it by another name.
// - a node whose operator a library brought says which in its metadata_props: `opkit.library` has
//   the library's name, `opkit.library_version` the version that it announces
// - devices, backends and what marks gradient operators are left out, as ONNX has none of them
//
// ParseOnnxModel gives the same graph to the bit, except for what this list says is changed.
//
// Errors name the node and the attribute: kUnsupported for what ONNX cannot hold: a control input,
// a node that rewrites a value, a subgraph that is no Graph, a number beyond float32's range,
// arguments that opkit adds to a standard operator, tensors that the host cannot reach, bodies
// nested more than kMaxOnnxDepth deep, and models of 2 GiB or more; kUninitialized for a tensor
// without data; kInvalidArgument for wrong options, a graph that is not whole, and captures that do
// not fit the node's inputs.
std::string ToOnnx(const Graph& graph, const OnnxWriteOptions& options = {});

// Writes them to a file. Errors: as ToOnnx's, beginning with the path; kFailedPrecondition when the
// file cannot be written, which is then as it was.
//
//   SaveOnnx(graph, "model.onnx");
void SaveOnnx(const Graph& graph, const std::string& path, const OnnxWriteOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/onnx_writer.ipp"
#endif

#endif  // OPKIT_INTEROP_ONNX_WRITER_HPP_
