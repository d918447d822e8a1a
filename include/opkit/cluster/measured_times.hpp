// TimesOfNodes: the measured times of a plan's nodes, by which Pipeline cuts a graph and
// SimulateStep predicts the time of a step.
#ifndef OPKIT_CLUSTER_MEASURED_TIMES_HPP_
#define OPKIT_CLUSTER_MEASURED_TIMES_HPP_

#include <map>
#include <string>

#include "opkit/graph/run_profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Times of nodes in ns, by the name of a node's first output. This name is the same in the parts of
// a graph.
using MeasuredTimes = std::map<std::string, double>;

// Returns the times of the nodes of a run (ProfileOfRun). Nodes without outputs have no time.
MeasuredTimes TimesOfNodes(const Plan& plan, const RunProfile& run);

// Returns the time of a node in ns. Throws kNotFound if it was not measured.
double TimeOfNode(const MeasuredTimes& times, const OperatorDef& def);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/measured_times.ipp"
#endif

#endif  // OPKIT_CLUSTER_MEASURED_TIMES_HPP_
