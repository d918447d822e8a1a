// Graphs as JSON text and back, passes over JSON, and MXNet's names in it, compiled once:
// opkit::json.
#include "opkit/interop/impl/json.ipp"
#include "opkit/interop/impl/graph_pass.ipp"
#include "opkit/interop/mxnet/impl/operator_names.ipp"
#include "opkit/interop/mxnet/impl/symbol_names.ipp"
