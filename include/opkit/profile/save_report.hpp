// SaveReport: writes a profile as a page for a browser. The writer itself is
// opkit/report/report.hpp, which registers itself if a program includes it. Programs that only
// record do not compile it.
#ifndef OPKIT_PROFILE_SAVE_REPORT_HPP_
#define OPKIT_PROFILE_SAVE_REPORT_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/profile/profile_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A run of a graph, from which a report draws the graph and the memory over time. ReportOfRun of
// opkit/graph/run_profile.hpp makes it. All times are ns since the profile's session began.
struct RunReport {
  struct Node {
    std::string name;
    int64_t ready = 0, begin = 0, end = 0;  // as in NodeTime
    std::vector<int> after;                 // indices in `nodes` of the nodes that it waits for
    bool critical = false;                  // on the critical path
  };
  struct Buffer {
    std::string name;   // the value's name; "a = b" for values that share it, in order
    std::string owner;  // the node that writes it first
    int64_t bytes = 0;
    int64_t begin = 0, end = 0;  // begin and end of the period in which its memory is in use
  };
  // The run on one of several processes (ClusterRun of opkit/cluster/cluster_run.hpp).
  struct Process {
    int64_t ns = 0;
    int64_t waited = 0;  // the part of it in which the process only communicated
  };
  // A node that communicates with other processes, as in ClusterRun::Wait.
  struct Wait {
    std::string node;
    int process = 0, peer = 0;
    int64_t ns = 0, late = 0;
  };
  std::vector<Node> nodes;  // sorted by begin; empty if there is no run to show
  std::vector<Buffer> buffers;
  std::vector<Process> processes;  // empty for a run of one process
  std::vector<Wait> waits;
  int64_t begin = 0, end = 0;
  int64_t arena_bytes = 0;  // size of the plan's arena, which holds all buffers
  // The subgraphs that partitioners took, and why other nodes stayed: the JSON of
  // PartitionReport::ToJson() (opkit/graph/partition/report.hpp). Empty if there is nothing to
  // show.
  std::string partition = {};
};

// Writes a profile as a page. `table` sets the options of its table; `table.peak` adds a roofline.
// `run` adds the graph, its memory, and the parts that partitioners took of it. Throws kUnsupported
// if no file of the program includes opkit/report/report.hpp, kIo if the file cannot be written.
void SaveReport(const Profile& profile, const std::string& path,
                const ProfileTableOptions& table = {}, const RunReport& run = {});

namespace detail {

OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Profile& profile, const std::string& path,
                                             const ProfileTableOptions& table,
                                             const RunReport& run)>
    g_report_writer{"a report", "opkit/report/report.hpp"};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/save_report.ipp"
#endif

#endif  // OPKIT_PROFILE_SAVE_REPORT_HPP_
