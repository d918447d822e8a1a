// The options and the inputs of a plan on one of several processes.
#ifndef OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_
#define OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_

#include "opkit/cluster/communicator.hpp"
#include "opkit/graph/executor.hpp"

inline opkit::PlanOptions With(const opkit::CommunicatorPtr& communicator) {
  opkit::PlanOptions options;
  options.cluster.communicator = communicator;
  return options;
}
// Returns those of the inputs that the part of this process has.
inline std::vector<opkit::NamedTensor> InputsOf(const opkit::Executor& executor,
                                                const std::vector<opkit::NamedTensor>& inputs) {
  std::vector<opkit::NamedTensor> own;
  for (const opkit::NamedTensor& input : inputs)
    if (executor.plan().graph().IsInput(input.name)) own.push_back(input);
  return own;
}

#endif  // OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_
