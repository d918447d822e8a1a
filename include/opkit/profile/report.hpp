// A profile as a page for a browser. What makes the page is opkit/report/report.hpp, which
// registers itself where a program includes it, so that recording drags in none of it.
#ifndef OPKIT_PROFILE_REPORT_HPP_
#define OPKIT_PROFILE_REPORT_HPP_

#include "opkit/profile/profile_table.hpp"

namespace opkit::inline OPKIT_ABI {

// `table` is for the report's table; with its `peak` the report has a roofline. Errors:
// kUnsupported where no file of the program includes opkit/report/report.hpp; kFailedPrecondition
// where the file cannot be written.
void WriteReport(const Profile& profile, const std::string& path,
                 const ProfileTableOptions& table = {});

namespace detail {

using ReportWriter = void(const Profile& profile, const std::string& path,
                          const ProfileTableOptions& table);
// True, for static initialisers.
bool SetReportWriter(ReportWriter* writer) noexcept;

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/report.ipp"
#endif

#endif  // OPKIT_PROFILE_REPORT_HPP_
