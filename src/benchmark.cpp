// The compiled runtime: the comparison of kernels by time, and the choice of kernels by it.
#include "opkit/graph/tune/impl/assignment.ipp"
#include "opkit/graph/tune/impl/node_times.ipp"
#include "opkit/graph/tune/impl/tune.ipp"
#include "opkit/graph/tune/impl/tuned_graph.ipp"
#include "opkit/graph/tune/impl/machine_key.ipp"
#include "opkit/op/benchmark/impl/compare_kernels.ipp"
#include "opkit/op/benchmark/impl/kernel_run.ipp"
#include "opkit/profile/timing/impl/interleaved_times.ipp"
