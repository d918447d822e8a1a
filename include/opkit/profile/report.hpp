// A profile as a page for a browser. What makes the page is opkit/report/report.hpp, which
// registers itself where a program includes it, so that recording drags in none of it.
#ifndef OPKIT_PROFILE_REPORT_HPP_
#define OPKIT_PROFILE_REPORT_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/profile/profile_table.hpp"

namespace opkit::inline OPKIT_ABI {

// A run of a graph, for a report's picture of the graph and of the memory over time: ReportOfRun of
// opkit/graph/run_profile.hpp makes it. All times are ns since the profile's session began.
struct RunReport {
  struct Node {
    std::string name;
    int64_t ready = 0, begin = 0, end = 0;  // as in NodeTime
    std::vector<int> after;                 // places in `nodes` of those that it waits for
    bool critical = false;                  // on the critical path
  };
  struct Buffer {
    std::string name;   // of the value; of those that share it, in order, "a = b"
    std::string owner;  // the node that writes it first
    int64_t bytes = 0;
    int64_t begin = 0, end = 0;  // when its memory was taken, and free again
  };
  std::vector<Node> nodes;  // by begin; empty: there is no run to show
  std::vector<Buffer> buffers;
  int64_t begin = 0, end = 0;
  int64_t arena_bytes = 0;  // that the plan holds for all buffers
  // What partitioners took of the graph and why the rest stayed, as PartitionReport::ToJson() of
  // opkit/graph/partition/report.hpp says it; empty: there is nothing of it to show.
  std::string partition = {};
};

// `table` is for the report's table; with its `peak` the report has a roofline, with a `run` the
// graph and its memory, and what partitioners took of the graph. Errors: kUnsupported where no file
// of the program includes opkit/report/report.hpp; kFailedPrecondition where the file cannot be
// written.
void WriteReport(const Profile& profile, const std::string& path,
                 const ProfileTableOptions& table = {}, const RunReport& run = {});

namespace detail {

OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Profile& profile, const std::string& path,
                                             const ProfileTableOptions& table,
                                             const RunReport& run)>
    g_report_writer{"a report", "opkit/report/report.hpp"};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/report.ipp"
#endif

#endif  // OPKIT_PROFILE_REPORT_HPP_
