// The options and the inputs of a plan on one of several processes, and values for their means.
#ifndef OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_
#define OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_

#include "opkit/cluster/communicator.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/ops/support/element_types.hpp"

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
// Returns numbers x whose sum x + x + x, divided by 3, is x again after all roundings. In float and
// double, multiplying the sum by the rounded 1 / 3 gives another number.
template <class T>
std::vector<T> ValuesToAverage(size_t count) {
  using Computed = opkit::detail::ComputeType<T>;
  std::vector<T> values;
  for (int i = 1; values.size() < count; ++i) {
    const T x(static_cast<Computed>(i) / Computed(97)), two(Computed(x) + Computed(x));
    const T sum(Computed(two) + Computed(x)), divided(Computed(sum) / Computed(3));
    const T multiplied(Computed(sum) * (Computed(1) / Computed(3)));
    const bool is_wide = sizeof(T) >= sizeof(float);
    if (divided == x && (!is_wide || multiplied != x)) values.push_back(x);
  }
  return values;
}

#endif  // OPKIT_TESTS_CLUSTER_LOCAL_RUNS_HPP_
