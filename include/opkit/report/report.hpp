// The writer of reports: with this header in one file of a program, Profiler::WriteReport and
// WriteReport make a page of a profile, with a timeline, its counters and markers, and the table.
//
//   #include "opkit/report/report.hpp"
//   Profiler::WriteReport("report.html");
#ifndef OPKIT_REPORT_REPORT_HPP_
#define OPKIT_REPORT_REPORT_HPP_

#include "opkit/profile/report.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One HTML file that needs nothing but a browser. It holds each span in some 25 bytes; for millions
// of them WritePerfettoTrace is the better choice. Bytes of a name that are no UTF-8 become U+FFFD.
void WriteHtmlReport(const Profile& profile, const std::string& path,
                     const ProfileTableOptions& table, const RunReport& run);

OPKIT_IMAGE_LOCAL inline const bool kFillsReportWriter = g_report_writer.Fill(&WriteHtmlReport);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/report/impl/report.ipp"
#endif

#endif  // OPKIT_REPORT_REPORT_HPP_
