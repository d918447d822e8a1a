// Definitions of DataParallel and AllReduceGradients.
#ifndef OPKIT_CLUSTER_IMPL_DATA_PARALLEL_IPP_
#define OPKIT_CLUSTER_IMPL_DATA_PARALLEL_IPP_

#include <algorithm>
#include <set>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/cluster/data_parallel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A gradient, the node that makes it, and the place of that node in the order of a run.
struct MadeGradient {
  std::string name;
  int producer = -1;  // -1: an input or a constant of the graph
  int place = -1;
  DType dtype = DType::kUndefined;
  int64_t bytes = 0;  // -1: not known before a run
};
// The gradients of one AllReduce, which is added behind the last of their producers.
struct GradientBucket {
  std::vector<std::string> gradients;
  int64_t bytes = 0;
  int after = -1;
};

// Returns each gradient once, in the order in which a run makes them.
inline std::vector<MadeGradient> GradientsInOrder(const Graph& graph,
                                                  const GradientMap& gradients) {
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view);
  IndexedVector<int> places(Index(graph.num_nodes()));
  for (size_t i = 0; i < view.order().size(); ++i) places[view.order()[i]] = static_cast<int>(i);
  std::vector<MadeGradient> made;
  std::set<std::string> seen;
  for (const auto& [value, gradient] : gradients) {
    if (gradient.IsSparse())
      Throw(ErrorCode::kUnsupported, "the gradient of '", value, "' is sparse, ",
            ToString(gradient), ", and AllReduce combines dense tensors");
    if (gradient.IsEmpty() || !seen.insert(gradient.dense).second) continue;
    const TensorInfo& info = types.Get(gradient.dense);
    MadeGradient& one = made.emplace_back();
    one.name = gradient.dense;
    one.producer = graph.Producer(one.name);
    one.dtype = info.dtype;
    one.bytes = info.shape.is_known() ? static_cast<int64_t>(OpSchema::Bytes(info)) : -1;
    if (one.producer < 0) continue;
    one.place = places[one.producer];
    const OperatorDef& def = graph.node(one.producer);
    if (def.process() >= 0)
      Throw(ErrorCode::kInvalidArgument, "the node ", def, " makes the gradient of '", value,
            StrCat("' on process ", def.process(), " only; DataParallel combines gradients "),
            "that all processes make");
  }
  StableSort(made, [](const MadeGradient& a, const MadeGradient& b) { return a.place < b.place; });
  return made;
}

inline std::vector<GradientBucket> Buckets(const std::vector<MadeGradient>& gradients,
                                           int64_t bucket_bytes) {
  std::vector<GradientBucket> full;
  std::map<DType, GradientBucket> open;  // the tensors of an AllReduce have one dtype
  for (const MadeGradient& gradient : gradients) {
    GradientBucket& bucket = open[gradient.dtype];
    bucket.gradients.push_back(gradient.name);
    bucket.after = (std::max)(bucket.after, gradient.producer);
    bucket.bytes += (std::max)(gradient.bytes, int64_t{0});
    const bool is_known = gradient.bytes >= 0 && gradient.dtype != DType::kUndefined;
    if (bucket.bytes >= bucket_bytes || !is_known)
      full.push_back(std::exchange(bucket, GradientBucket()));
  }
  for (auto& [dtype, bucket] : open)
    if (!bucket.gradients.empty()) full.push_back(std::move(bucket));
  return full;
}

}  // namespace detail

OPKIT_INLINE GradientMap AllReduceGradients(Graph& graph, const GradientMap& gradients,
                                            const DataParallelOptions& options) {
  if (options.bucket_bytes < 1)
    Throw(ErrorCode::kInvalidArgument, "DataParallelOptions::bucket_bytes is ",
          options.bucket_bytes, ", expected 1 or more");
  std::vector<detail::GradientBucket> buckets =
      detail::Buckets(detail::GradientsInOrder(graph, gradients), options.bucket_bytes);
  // From the last node to the first, so that the indices of nodes before stay the same.
  detail::StableSort(buckets, [](const auto& a, const auto& b) { return a.after > b.after; });
  Graph with = graph;
  std::map<std::string, std::string> combined;
  for (const detail::GradientBucket& bucket : buckets) {
    OperatorDef def("opkit.cluster.AllReduce");
    def.Arg("reduction", options.is_mean ? "mean" : "sum").IsGradientOp(true);
    if (options.deterministic) def.Arg("deterministic", int64_t{1});
    for (const std::string& gradient : bucket.gradients) {
      const std::string name = with.FreshName(gradient + "_of_all");
      def.Input(gradient).Output(name);
      combined[gradient] = name;
    }
    with.InsertNode(bucket.after + 1, std::move(def));
  }
  GradientMap out = gradients;
  for (auto& [value, gradient] : out)
    if (gradient.IsDense()) gradient = GradientValue(combined.at(gradient.dense));
  graph = std::move(with);
  return out;
}

OPKIT_INLINE GradientMap DataParallel(Graph& graph, const std::string& loss,
                                      const std::vector<std::string>& wrt,
                                      const DataParallelOptions& options) {
  Graph with = graph;
  const GradientMap own = AddGradients(with, loss, wrt, options.gradients);
  GradientMap combined = AllReduceGradients(with, own, options);
  graph = std::move(with);
  return combined;
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_DATA_PARALLEL_IPP_
