// Graphs as JSON text and back, and passes over JSON, compiled once: opkit::json.
#include "opkit/interop/impl/json.ipp"
#include "opkit/interop/impl/graph_pass.ipp"
