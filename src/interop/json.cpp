// Graphs as JSON text and back, compiled once: opkit::json.
#include "opkit/interop/impl/json.ipp"
