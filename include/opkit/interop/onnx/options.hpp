// OnnxOptions, the options for loading an ONNX model, and OnnxModel, the result: the graph and the
// file's data about it.
#ifndef OPKIT_INTEROP_ONNX_OPTIONS_HPP_
#define OPKIT_INTEROP_ONNX_OPTIONS_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The largest depth of graphs inside graphs in models that opkit writes, and the default for
// reading.
inline constexpr int kMaxOnnxDepth = 64;

// The options of LoadOnnx and ParseOnnxModel.
struct OnnxOptions {
  // For tools that only inspect a model: keeps nodes whose operator is not registered or has
  // another meaning in the model's opset. Such a graph may not run, or may compute other values.
  bool allow_unknown_operators = false;
  // Lets a node of a domain other than ONNX's run the standard operator of its type, which may have
  // another meaning in that domain. OnnxModel::warnings lists these nodes.
  bool standard_operators_in_any_domain = false;
  // Makes constants of the inputs that have a default: runs can give them no other value. Models
  // whose weights are all listed as inputs then get the passes and kernels for constant weights.
  bool fix_defaults = false;
  // Replaces an output NAME of the model that a ZipMap makes by an output NAME.LABEL, of shape [N],
  // for each label. Without this option, NAME is the tensor of scores, of shape [N, labels].
  bool zipmap_columns = false;
  int max_subgraph_depth = kMaxOnnxDepth;  // also the limit for functions that call functions
  int64_t max_nodes = 1'000'000;           // including subgraphs and inlined functions
};

// An entry of opset_import. The default domain is "".
struct OnnxOpset {
  std::string domain;
  int64_t version = 0;
};

// A loaded model.
struct OnnxModel {
  Graph graph;
  std::string name;  // name of the graph
  int64_t ir_version = 0;
  std::string producer;  // "pytorch 2.4.0"
  std::string domain;
  int64_t model_version = 0;
  std::string doc;
  std::vector<OnnxOpset> opsets;
  std::vector<std::pair<std::string, std::string>> metadata;
  // The types that the file declares for the graph's outputs; compiling the graph infers them anew.
  // Nothing is declared for the columns of a ZipMap.
  std::vector<TensorInfo> output_types;
  // A sentence for each node that only the options allow, for each ZipMap that is not split into
  // columns, and for each input whose default had to become a constant.
  std::vector<std::string> warnings;

  // Returns the version of a domain that the model imports; 0 for other domains.
  int64_t opset(std::string_view of_domain = "") const {
    for (const OnnxOpset& known : opsets)
      if (known.domain == of_domain) return known.version;
    return 0;
  }
};

}}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_OPTIONS_HPP_
