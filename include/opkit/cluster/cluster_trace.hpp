// SaveClusterTrace: writes one trace of all processes. AlignClocks measures their clocks,
// GatherProfiles brings their profiles to process 0, and an arrow leads from each Send to its Recv.
#ifndef OPKIT_CLUSTER_CLUSTER_TRACE_HPP_
#define OPKIT_CLUSTER_CLUSTER_TRACE_HPP_

#include <string>
#include <vector>

#include "opkit/base/function_ref.hpp"
#include "opkit/cluster/communicator.hpp"
#include "opkit/profile/profiler.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The clock of a process against that of process 0, in ns.
struct ClockOffset {
  int64_t offset = 0;  // the clock of the process minus the clock of process 0
  int64_t error = 0;   // the offset is at most so much higher or lower
};

// Measures the clocks of all processes, which must call it together. Process 0 sends a message to
// each other process, which answers with its time; the fastest of `rounds` answers counts, and half
// of its time is the error (Cristian 1989). Each process gets the offsets of all. `now` is the
// process's clock.
std::vector<ClockOffset> MeasureClocks(Communicator& communicator, FunctionRef<int64_t()> now,
                                       int rounds = 32);

// Measures the clocks and marks the result in the profile, for GatherProfiles. The offset is 0
// between processes of one machine. All processes call it in a session of their profilers, near
// the runs that matter: the clocks of machines drift by some microseconds in a second.
std::vector<ClockOffset> AlignClocks(Communicator& communicator);

// Returns, on process 0, the profiles of all processes with times by the clock of process 0, from
// the begin of the first session on, and nothing on the others. All processes call it together. In
// a LocalCluster each process gets the spans of its own part. Keeps threads, spans, counters and
// markers. Throws kFailedPrecondition for a profile without AlignClocks, on all processes.
//
//   Profiler::Start();
//   AlignClocks(*communicator);
//   executor.Run();
//   Profiler::Stop();
//   const auto profiles = GatherProfiles(*communicator, Profiler::Read());
//   if (communicator->process() == 0) SaveClusterTrace(profiles, "trace.json");
std::vector<Profile> GatherProfiles(Communicator& communicator, const Profile& profile);

// A message in gathered profiles.
struct MessageTime {
  std::string value;  // its name in the graph; the Send node of a graph's author may have another
  int from = 0, to = 0;  // indices of the profiles
  const ProfileSpan* send = nullptr;
  const ProfileSpan* receive = nullptr;  // in the profiles
  // Returns how long the receiver waited until the sender had begun to send, in ns.
  int64_t wait() const { return send->begin > receive->begin ? send->begin - receive->begin : 0; }
};
// Returns the messages between processes, by sender and time: those that were sent and received
// with success, and whose Send and Recv are both in the profiles. The plans may be of parts of the
// job, each with a communicator of its own.
std::vector<MessageTime> MessagesOf(const std::vector<Profile>& profiles);

// Returns one profile with the threads of all processes ("process 1: worker"), for tables, reports
// and other traces.
Profile MergedProfile(const std::vector<Profile>& profiles);

// Writes a Chrome trace with a track for each process, and an arrow for each message. Throws kIo if
// the file cannot be written.
void SaveClusterTrace(const std::vector<Profile>& profiles, const std::string& path);

namespace detail {
// Returns the time by the clock of process 0, in ns, at the begin of the session of a process's
// profile. Throws kFailedPrecondition for a profile without AlignClocks.
int64_t SessionBegin(const Profile& profile, int process);
// Returns the spans, counters and markers of a process, and their threads. The threads of a
// LocalCluster are of one program: process 0 gets the program's counters.
Profile OwnPart(const Profile& profile, const Communicator& communicator);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/cluster_trace.ipp"
#endif

#endif  // OPKIT_CLUSTER_CLUSTER_TRACE_HPP_
