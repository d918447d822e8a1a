// Nodes over the operators of ops_test.cpp.
#ifndef OPKIT_TESTS_GRAPH_NODES_HPP_
#define OPKIT_TESTS_GRAPH_NODES_HPP_

#include "opkit/op/operator_def.hpp"

namespace graph_nodes {

using opkit::OperatorDef;

inline OperatorDef Relu(const char* in, const char* out) {
  return OperatorDef("Relu").Input(in).Output(out);
}
inline OperatorDef Scale(const char* in, const char* out, double scale) {
  return OperatorDef("Scale").Input(in).Output(out).Arg("scale", scale);
}
inline OperatorDef Add(const char* a, const char* b, const char* out) {
  return OperatorDef("Add").Input(a).Input(b).Output(out);
}
inline OperatorDef Accumulate(const char* total, const char* x) {
  return OperatorDef("Accumulate").Input(total).Input(x).Output(total);
}

}  // namespace graph_nodes

#endif  // OPKIT_TESTS_GRAPH_NODES_HPP_
