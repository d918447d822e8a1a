// ProfileOfRun: finds a run of a plan in a profile. Returns the times of each node, how long it
// waited after its predecessors, and the critical path: the chain of nodes that bounds the run.
#ifndef OPKIT_GRAPH_RUN_PROFILE_HPP_
#define OPKIT_GRAPH_RUN_PROFILE_HPP_

#include <optional>

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The times of one node in a run, in ns since the profile's session began.
struct NodeTime {
  int node = 0;       // index in the plan's graph with the conversions and copies of its last run
  std::string name;   // "Conv (conv1)": the type, and the node's name or its first output
  int64_t ready = 0;  // when the last predecessor ended; without predecessors, the run's begin
  int64_t begin = 0;
  int64_t end = 0;  // when the operator returned or its event completed, whichever was later
  int thread = 0;   // index in Profile::threads
  // Indices in RunProfile::nodes of its predecessors; the one that ended last comes first.
  std::vector<int> after = {};
};

// The times of one run.
struct RunProfile {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<NodeTime> nodes;  // sorted by begin
  // Indices in `nodes`, in the order of the run. The path ends with the node that ended last.
  // Before each node comes its predecessor that ended last, back to a node without predecessors. No
  // order of the nodes takes less than the sum of the path's times (Kelley and Walker 1959).
  std::vector<int> critical_path;
};

// Returns the last run of the plan, by any executor, in a profile. Throws kNotFound if the profile
// has no complete run of the plan, and kFailedPrecondition unless plan.has_shapes().
//
//   Profiler::Start();
//   executor.Run();
//   Profiler::Stop();
//   std::puts(ToString(ProfileOfRun(executor.plan(), Profiler::Read())).c_str());
RunProfile ProfileOfRun(const Plan& plan, const Profile& profile);

// Returns the same run for SaveReport: the nodes, their predecessors, and the planned memory over
// time. Throws the errors of ProfileOfRun.
//
//   SaveReport(Profiler::Read(), "report.html", {}, ReportOfRun(executor.plan(),
//   Profiler::Read()));
RunReport ReportOfRun(const Plan& plan, const Profile& profile);

// Returns the run's times, and a table of the critical path with the waits of its nodes.
std::string ToString(const RunProfile& run);

namespace detail {
// Returns the last complete run of the plan in a profile for whose span `is_wanted` returns true.
// Asks for the later runs first.
std::optional<RunProfile> FindRun(const Plan& plan, const Profile& profile,
                                  FunctionRef<bool(const ProfileSpan& run)> is_wanted);
// Throws the Error of ProfileOfRun for a profile without a complete run of the plan.
[[noreturn]] void ThrowNoRun(const Plan& plan, const Profile& profile);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/run_profile.ipp"
#endif

#endif  // OPKIT_GRAPH_RUN_PROFILE_HPP_
