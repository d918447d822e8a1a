// The writer of reports, if there is one.
#ifndef OPKIT_PROFILE_IMPL_REPORT_IPP_
#define OPKIT_PROFILE_IMPL_REPORT_IPP_

#include <atomic>

#include "opkit/profile/report.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Set by static initialisers, which a library that is loaded runs beside other threads.
inline constinit std::atomic<ReportWriter*> g_report_writer{nullptr};

OPKIT_INLINE bool SetReportWriter(ReportWriter* writer) noexcept {
  g_report_writer = writer;
  return true;
}

}  // namespace detail

OPKIT_INLINE void WriteReport(const Profile& profile, const std::string& path,
                              const ProfileTableOptions& table, const RunReport& run) {
  detail::ReportWriter* const writer = detail::g_report_writer;
  if (!writer)
    throw Error(ErrorCode::kUnsupported,
                StrCat("cannot write the report '", path,
                       "': no file of the program includes opkit/report/report.hpp, which is not a "
                       "part of opkit/all.hpp"));
  writer(profile, path, table, run);
}

}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_REPORT_IPP_
