// Graphs as JSON text and back, and traces that are compared, compiled once: opkit::json.
#include "opkit/interop/impl/json.ipp"
#include "opkit/interop/impl/trace_times.ipp"
