// The options for loading an ONNX model, and the result: the graph and what the file says about it.
#ifndef OPKIT_INTEROP_ONNX_OPTIONS_HPP_
#define OPKIT_INTEROP_ONNX_OPTIONS_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// How deep graphs in graphs may be nested: models that are written have no deeper ones.
inline constexpr int kMaxOnnxDepth = 64;

struct OnnxOptions {
  // For tools that only inspect a model: nodes are kept although their operator is not registered,
  // or means something else in the model's opset. Such a graph may not run, or may compute other
  // values.
  bool allow_unknown_operators = false;
  // A node of another domain than ONNX's may run the standard operator of its type, which may mean
  // something else there. OnnxModel::warnings tells which nodes do.
  bool standard_operators_in_any_domain = false;
  int max_subgraph_depth = kMaxOnnxDepth;  // and of functions that call functions
  int64_t max_nodes = 1'000'000;  // of the model with its subgraphs and the bodies of its calls
};

// One line of opset_import; the default domain is "".
struct OnnxOpset {
  std::string domain;
  int64_t version = 0;
};

struct OnnxModel {
  Graph graph;
  std::string name;  // of the graph
  int64_t ir_version = 0;
  std::string producer;  // "pytorch 2.4.0"
  std::string domain;
  int64_t model_version = 0;
  std::string doc;
  std::vector<OnnxOpset> opsets;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> warnings;  // a sentence each, for what the options let pass

  // The version of a domain that the model imports; 0 for others.
  int64_t opset(std::string_view of_domain = "") const {
    for (const OnnxOpset& known : opsets)
      if (known.domain == of_domain) return known.version;
    return 0;
  }
};

}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_OPTIONS_HPP_
