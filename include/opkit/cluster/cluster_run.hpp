// ProfileOfRun for several processes: one run of a plan on all of them, its critical path, which
// crosses from process to process, and how long processes waited for each other.
#ifndef OPKIT_CLUSTER_CLUSTER_RUN_HPP_
#define OPKIT_CLUSTER_CLUSTER_RUN_HPP_

#include <string>
#include <vector>

#include "opkit/cluster/cluster_trace.hpp"
#include "opkit/graph/run_profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A run of a plan on all processes. Times are ns, as in the profiles of GatherProfiles.
struct ClusterRun {
  struct Node {
    int process = 0;
    int index = 0;  // in the process's RunProfile::nodes
    friend bool operator==(const Node&, const Node&) = default;
  };
  // The part of a node's time that is on the critical path.
  struct Step {
    Node node;
    int64_t begin = 0, end = 0;
  };
  // A node that communicates, while no other node of its process runs.
  struct Wait {
    Node node;
    // The other process. In a collective: the one that began it last, without the node's own.
    int peer = 0;
    int64_t ns = 0;    // the time during which no other node ran
    int64_t late = 0;  // the part of it before the peer began the communication
  };
  int64_t begin = 0, end = 0;
  std::vector<RunProfile> processes;
  // The nodes that meet in a message (first that of the sender) or in a collective.
  std::vector<std::vector<Node>> communications;
  // The chain of nodes that bounds the run, in its order. It goes back from the node that ended
  // last, as RunProfile::critical_path does. If another process was the last one to begin a
  // communication, the path goes on there: from a Recv at its Send, and from a collective at the
  // same collective of that process. The begin of a step is not before the end of the one before.
  std::vector<Step> critical_path;
  std::vector<Wait> waits;      // by process and begin
  std::vector<int64_t> waited;  // for each process: the time of all waits, which may overlap
};

// Returns, on process 0, the last run of the plan that is complete in the profiles of all
// processes, and an empty one on the others. All processes call it together, with the profiles of
// sessions in which they have called AlignClocks. Throws kFailedPrecondition on all processes if
// there is no such run, if a profile is without AlignClocks, or if the processes have different
// plans.
//
//   const ClusterRun run = ProfileOfRun(*communicator, executor.plan(), Profiler::Read());
//   if (communicator->process() == 0) std::puts(ToString(run).c_str());
ClusterRun ProfileOfRun(Communicator& communicator, const Plan& plan, const Profile& profile);

// Returns the run for SaveReport: the nodes of all processes, and their waits.
//
//   SaveReport(MergedProfile(profiles), "report.html", {}, ReportOfRun(run));
RunReport ReportOfRun(const ClusterRun& run);

// Returns a table of the critical path, and one of the longest waits of each process.
std::string ToString(const ClusterRun& run);

namespace detail {
// Finds the critical path and the waits of a run that has `processes` and `communications`.
void FindPathAndWaits(ClusterRun& run);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/cluster_run.ipp"
#endif

#endif  // OPKIT_CLUSTER_CLUSTER_RUN_HPP_
