// What a program may choose when it loads an ONNX model, and what it gets.
#ifndef OPKIT_INTEROP_ONNX_OPTIONS_HPP_
#define OPKIT_INTEROP_ONNX_OPTIONS_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

struct OnnxOptions {
  // For tools that only look at a model: a node whose operator is not registered is kept as it is,
  // and one whose operator differs from opkit's in the model's opset is not an Error. Such a graph
  // may not run, or not as the model means it.
  bool allow_unknown_operators = false;
  int max_subgraph_depth = 64;    // graphs inside graphs, and functions that call functions
  int64_t max_nodes = 1'000'000;  // of the model with its subgraphs, functions written out
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

  // Of a domain that the model imports; 0 for others.
  int64_t opset(std::string_view of_domain = "") const {
    for (const OnnxOpset& known : opsets)
      if (known.domain == of_domain) return known.version;
    return 0;
  }
};

}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_OPTIONS_HPP_
