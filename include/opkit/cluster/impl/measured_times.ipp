// Definitions of TimesOfNodes and TimeOfNode.
#ifndef OPKIT_CLUSTER_IMPL_MEASURED_TIMES_IPP_
#define OPKIT_CLUSTER_IMPL_MEASURED_TIMES_IPP_

#include "opkit/base/error.hpp"
#include "opkit/cluster/measured_times.hpp"
#include "opkit/graph/plan/plan_state.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE MeasuredTimes TimesOfNodes(const Plan& plan, const RunProfile& run) {
  const auto specialization = plan.state()->GetLatest();  // has conversions of layouts, too
  MeasuredTimes times;
  for (const NodeTime& time : run.nodes) {
    const OperatorDef& def = specialization->view().graph().node(time.node);
    if (!def.outputs().empty())
      times[def.outputs()[0]] = static_cast<double>(time.end - time.begin);
  }
  return times;
}
OPKIT_INLINE double TimeOfNode(const MeasuredTimes& times, const OperatorDef& def) {
  const auto found = def.outputs().empty() ? times.end() : times.find(def.outputs()[0]);
  if (found == times.end())
    Throw(ErrorCode::kNotFound, "there is no measured time of the node ", def,
          "; measure a plan with the same nodes");
  return found->second;
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_MEASURED_TIMES_IPP_
