// Executors of plans, and what a recorded run of one was: the compiled runtime's part that runs
// graphs.
#include "opkit/graph/impl/executor.ipp"
#include "opkit/graph/debug/impl/compare_runs.ipp"
#include "opkit/graph/debug/impl/run_values.ipp"
#include "opkit/graph/hosted_graph.hpp"
#include "opkit/graph/impl/run_profile.ipp"
