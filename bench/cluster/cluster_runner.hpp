// ClusterRunner: runs a graph on processes that are threads of a benchmark.
#ifndef OPKIT_BENCH_CLUSTER_CLUSTER_RUNNER_HPP_
#define OPKIT_BENCH_CLUSTER_CLUSTER_RUNNER_HPP_

#include <chrono>
#include <optional>
#include <vector>

#include "opkit/cluster/local.hpp"
#include "opkit/cluster/measured_times.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/profile/profiler.hpp"
#include "statistics.hpp"

namespace cluster_bench {

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the times of the nodes of a graph on one process with one thread: medians of runs.
inline opkit::MeasuredTimes Measure(const opkit::Graph& graph,
                                    const std::vector<opkit::NamedTensor>& inputs) {
  opkit::PlanOptions options;
  options.threads = 1;
  opkit::Executor executor(opkit::Compile(graph, options));
  executor.Run(inputs);
  std::map<std::string, std::vector<double>> all;
  for (int run = 0; run < 5; ++run) {
    opkit::Profiler::Start();
    executor.Run(inputs);
    opkit::Profiler::Stop();
    const auto profile = ProfileOfRun(executor.plan(), opkit::Profiler::Read());
    for (const auto& [output, ns] : TimesOfNodes(executor.plan(), profile))
      all[output].push_back(ns);
  }
  opkit::MeasuredTimes times;
  for (const auto& [output, ns] : all) times[output] = Median(ns);
  return times;
}

// Runs the part of each process of a graph `runs` times; returns the seconds of a run.
class ClusterRunner {
 public:
  ClusterRunner(const opkit::Graph& graph, int processes,
                const std::vector<opkit::NamedTensor>& inputs, const opkit::LinkCost& delay = {})
      : cluster_(processes, delay), executors_(static_cast<size_t>(processes)) {
    cluster_.Run([&](const opkit::CommunicatorPtr& communicator) {
      opkit::PlanOptions options;
      options.threads = 1;
      options.cluster.communicator = communicator;
      opkit::Executor& executor =
          executors_[static_cast<size_t>(communicator->process())].emplace(Compile(graph, options));
      for (const opkit::NamedTensor& input : inputs)
        if (executor.plan().graph().IsInput(input.name)) executor.Bind(input.name, input.tensor);
    });
  }
  double Run(int runs) {
    const double begin = Seconds();
    cluster_.Run([&](const opkit::CommunicatorPtr& communicator) {
      for (int run = 0; run < runs; ++run)
        executors_[static_cast<size_t>(communicator->process())]->Run();
    });
    return (Seconds() - begin) / runs;
  }

 private:
  opkit::LocalCluster cluster_;
  std::vector<std::optional<opkit::Executor>> executors_;
};

}  // namespace cluster_bench

#endif  // OPKIT_BENCH_CLUSTER_CLUSTER_RUNNER_HPP_
