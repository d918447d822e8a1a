// ProfileOfRun: when each node of a plan ran in a recorded run, how long it waited after the nodes
// before it, and which chain of nodes the run's time was made of.
#ifndef OPKIT_GRAPH_RUN_PROFILE_HPP_
#define OPKIT_GRAPH_RUN_PROFILE_HPP_

#include "opkit/graph/plan.hpp"
#include "opkit/profile/report.hpp"

namespace opkit::inline OPKIT_ABI {

// All times are ns since the profile's session began.
struct NodeTime {
  int node = 0;       // of Plan::graph()
  std::string name;   // "Conv (conv1)": its type, and its name or that of its first output
  int64_t ready = 0;  // when the last of the nodes before it ended, or the run began
  int64_t begin = 0;
  int64_t end = 0;  // when its event completed, where that was later
  int thread = 0;   // index in Profile::threads
};

struct RunProfile {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<NodeTime> nodes;  // by begin
  // The node that ended last, the one among those before it that ended last, and so on to one that
  // waits for none; in the order of the run, places in `nodes`. No order of the same work by the
  // same nodes is faster than their times together (critical path: Kelley and Walker 1959).
  std::vector<int> critical_path;
};

// The last run of the plan, by any executor, in a profile. Errors: kNotFound where the profile has
// no whole run of it; kFailedPrecondition unless plan.has_shapes().
//
//   Profiler::Start();
//   executor.Run();
//   Profiler::Stop();
//   std::puts(ToString(ProfileOfRun(executor.plan(), Profiler::Read())).c_str());
RunProfile ProfileOfRun(const Plan& plan, const Profile& profile);

// The same run for WriteReport: the nodes, what each waits for, and the planned memory of the run
// over its time. Errors: as ProfileOfRun.
//
//   Profiler::WriteReport("report.html", {}, ReportOfRun(executor.plan(), Profiler::Read()));
RunReport ReportOfRun(const Plan& plan, const Profile& profile);

// The run's times, and the nodes of its critical path with their waits.
std::string ToString(const RunProfile& run);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/run_profile.ipp"
#endif

#endif  // OPKIT_GRAPH_RUN_PROFILE_HPP_
