// A model on several processes, for `opkit inspect --ranks` and `opkit run --pipeline`.
#ifndef OPKIT_TOOLS_OPKIT_RANKS_HPP_
#define OPKIT_TOOLS_OPKIT_RANKS_HPP_

#include "model.hpp"
#include "opkit/cluster/cluster_run.hpp"
#include "timing.hpp"

namespace cli {

// Returns a text about the stages of a pipeline of `ranks` processes: the nodes of each, and the
// values that cross with their bytes and costs. Throws a Failure (kBadModel) for a model that
// cannot be cut.
std::string DescribeRanks(const opkit::Graph& graph, const std::vector<opkit::Graph::Input>& shapes,
                          int ranks);

// The result of RunOnRanks.
struct RanksRun {
  opkit::NamedTensors outputs;  // in the order of the graph
  Times times;                  // of the runs of the last stage
  // With `profile`, on rank 0: the profiles of all ranks, and their last run unless some of
  // its records found no room.
  std::vector<opkit::Profile> profiles;
  opkit::ClusterRun run;
};

// Runs the stages of a pipeline `repeat` times, each on a rank of its own, and passes the result to
// `write`. Ranks are threads, which have one result. In a job of mpirun, which must have as many
// processes, each process is a rank, and its result has the outputs that it makes, and times only
// if it has the last stage. They then call `write` one after the other, rank 0 at the end, so that
// their lines do not mix.
void RunOnRanks(const opkit::Graph& graph, const std::vector<opkit::NamedTensor>& inputs,
                const ModelOptions& options, int ranks, int repeat, bool profile,
                opkit::FunctionRef<void(const RanksRun&)> write);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_RANKS_HPP_
