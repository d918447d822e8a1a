// SaveHtmlReport: the writer behind SaveReport. Include this header in
// one file of a program. The page has a timeline with counters and markers, and the table.
//
//   #include "opkit/report/report.hpp"
//   SaveReport(Profiler::Read(), "report.html");
#ifndef OPKIT_REPORT_REPORT_HPP_
#define OPKIT_REPORT_REPORT_HPP_

#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Writes one HTML file that needs nothing but a browser. Each span takes about 25 bytes; for
// millions of spans SavePerfettoTrace is the better choice. Bytes of a name that are not UTF-8
// become U+FFFD. Throws kIo if the file cannot be written.
void SaveHtmlReport(const Profile& profile, const std::string& path,
                    const ProfileTableOptions& table, const RunReport& run);

OPKIT_IMAGE_LOCAL inline const bool kFillsReportWriter = g_report_writer.Fill(&SaveHtmlReport);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/report/impl/report.ipp"
#endif

#endif  // OPKIT_REPORT_REPORT_HPP_
