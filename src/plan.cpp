// Plans and executors of graphs, compiled once.
#include "opkit/graph/impl/plan.ipp"
#include "opkit/graph/impl/draw_plan.ipp"
#include "opkit/graph/impl/executor.ipp"
#include "opkit/graph/impl/run_profile.ipp"
