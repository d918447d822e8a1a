// Calls the writer of reports, if the program has one.
#ifndef OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_
#define OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_

#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
OPKIT_INLINE void SaveReport(const Profile& profile, const std::string& path,
                             const ProfileTableOptions& table, const RunReport& run) {
  if (!detail::g_report_writer)
    throw Error(ErrorCode::kUnsupported,
                StrCat("cannot write the report '", path,
                       "': no file of the program includes opkit/report/report.hpp, which is not a "
                       "part of opkit/all.hpp"));
  detail::g_report_writer(profile, path, table, run);
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_
