// SaveOnnx(graph, path) writes a Graph as an ONNX model, for other runtimes and tools. LoadOnnx of
// interop/onnx.hpp reads the same graph again. The definitions need protozero; with CMake the
// target opkit::onnx contains them.
#ifndef OPKIT_INTEROP_ONNX_WRITER_HPP_
#define OPKIT_INTEROP_ONNX_WRITER_HPP_

#include "opkit/interop/onnx/options.hpp"
#include "opkit/ops/support/convert.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of ToOnnx and SaveOnnx.
struct OnnxWriteOptions {
  // The domain of registered operators that are not ONNX's.
  std::string domain = "opkit";
  // The opset of ONNX's own domain that the model declares, 21 to 28. opkit's operators are those
  // of opset 21. Set a later opset for a graph with operators that opkit lacks and that ONNX added
  // later.
  int64_t opset = 21;
  // The versions of other domains, for example from OnnxModel::opsets. A domain that is not listed
  // has version 1, and ai.onnx.ml version 5, the one that opkit's operators have.
  std::vector<OnnxOpset> domain_versions = {};
  std::string name = "opkit";  // name of the graph; not empty
};

// Returns the bytes of a ModelProto. In the model:
// - Inputs have the graph's dtypes and shapes. A symbol becomes a `dim_param`; an unknown extent
//   stays empty. Outputs have the types that inference finds (onnx.checker requires the rank of
//   each output, ONNX Runtime does not).
// - Constants are initializers, with their bytes as raw data.
// - Nodes are in an order in which they can run: the graph's own order if it is one.
// - A node of type "com.microsoft.Gelu" has that domain and the type "Gelu". Another node has
//   ONNX's domain if its operator is a standard operator or is not registered here, and otherwise
//   OnnxWriteOptions::domain.
// - A bool attribute is written as the integer 0 or 1, because ONNX has no bool. Floating-point
//   attributes are rounded to float32. An integer is written as a floating-point number if the
//   operator declares the attribute so.
// - A body (of If or Loop) reads values of the graphs around it by their names there. These values
//   have the types that inference finds. The node's attribute `captures`, which lists them in
//   opkit, is not written; ParseOnnxModel makes it again, unless it is empty. A body that returns
//   such a value gets an Identity node.
// - A value of a body gets another name if a graph around the body has a value of its name, because
//   ONNX requires distinct names. The body's metadata_props then have the old name, under the key
//   `opkit.name.` and the new name, and ParseOnnxModel restores it. The old names are not written
//   if some body of the model reads an outer value by another name.
// - A node whose operator comes from a library has `opkit.library`, the library's name, and
//   `opkit.library_version`, the version that the library announces, in its metadata_props.
// - Devices, backends and the marks of gradient operators are left out, because ONNX has none.
//
// ParseOnnxModel returns the same graph to the bit, except for the changes in this list.
//
// Errors name the node and the attribute. Throws:
// - kUnsupported for what ONNX cannot hold: a control input, a node that rewrites a value, a
//   subgraph that is no Graph, a number beyond the range of float32, arguments that opkit adds to a
//   standard operator, tensors that the host cannot reach, bodies nested more than kMaxOnnxDepth
//   deep, and models of 2 GiB or more.
// - kUninitialized for a tensor without data.
// - kInvalidArgument for wrong options, an incomplete graph, and captures that do not fit the
//   node's inputs.
std::string ToOnnx(const Graph& graph, const OnnxWriteOptions& options = {});

// Writes the model to a file. Throws the errors of ToOnnx, beginning with the path, and
// kIo if the file cannot be written; the file is then unchanged.
//
//   SaveOnnx(graph, "model.onnx");
void SaveOnnx(const Graph& graph, const std::string& path, const OnnxWriteOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/onnx_writer.ipp"
#endif

#endif  // OPKIT_INTEROP_ONNX_WRITER_HPP_
