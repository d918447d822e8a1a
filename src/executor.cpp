// The compiled runtime: executors of plans, profiles of their runs, and comparisons of two runs.
#include "opkit/graph/impl/executor.ipp"
#include "opkit/graph/debug/impl/compare_runs.ipp"
#include "opkit/graph/debug/impl/run_values.ipp"
#include "opkit/graph/hosted_graph.hpp"
#include "opkit/graph/impl/run_profile.ipp"
#include "opkit/graph/plan/impl/bound_plan.ipp"
#include "opkit/graph/plan/impl/recorded_runs.ipp"
#include "opkit/graph/plan/impl/tensor_bindings.ipp"
