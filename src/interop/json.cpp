// Graphs as JSON text and back, passes over JSON, and traces that are compared, compiled once:
// opkit::json.
#include "opkit/interop/impl/json.ipp"
#include "opkit/interop/impl/graph_pass.ipp"
#include "opkit/interop/impl/trace_times.ipp"
