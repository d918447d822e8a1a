// PlanKey and SharedTuningCache: where plans with PlanOptions::tuning find what was measured.
#ifndef OPKIT_GRAPH_TUNE_PLAN_TUNING_HPP_
#define OPKIT_GRAPH_TUNE_PLAN_TUNING_HPP_

#include "opkit/graph/plan/options.hpp"
#include "opkit/graph/tune/tuning_cache.hpp"
#include "opkit/op/inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
class Graph;
namespace detail {

// Returns the text under which a cache has the plan of a graph: a hash of its nodes, of the types
// of its inputs and constants and of the options that selection sees, and the number of threads.
OPKIT_IMAGE_LOCAL std::string PlanKey(const Graph& graph, const std::vector<TensorInfo>& inputs,
                                      const PlanOptions& options, int threads);

// Returns the options for a graph on which the passes and partitioners of these options have run
// already; without tuning.
OPKIT_IMAGE_LOCAL PlanOptions ForPreparedGraph(PlanOptions options);

// Returns the key under which a cache has a time: the text of a CostTable, behind the version of
// opkit and the number of threads.
OPKIT_IMAGE_LOCAL std::string TimeKey(const std::string& key, int threads);

// Returns the cache of this path, which is read once in a process. An empty path is that of
// TuningCache::DefaultPath().
OPKIT_IMAGE_LOCAL TuningCache& SharedTuningCache(const std::string& path);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_TUNE_PLAN_TUNING_HPP_
