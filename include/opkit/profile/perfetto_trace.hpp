// Writes a profile as a native Perfetto trace, for https://ui.perfetto.dev: a quarter of the size
// of JSON.
#ifndef OPKIT_PROFILE_PERFETTO_TRACE_HPP_
#define OPKIT_PROFILE_PERFETTO_TRACE_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Writes the protocol buffers of perfetto.protos.Trace, with interned names and with times as
// differences. Slices, their facts, counters, markers and arrows are those of SaveChromeTrace. Work
// that continues after its span is a slice on a track "asynchronous"; slices that overlap lie on
// different tracks. A slice has its invocation's id if another track refers to the slice. Throws
// kIo if the file cannot be written.
void SavePerfettoTrace(const Profile& profile, const std::string& path);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/perfetto_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_PERFETTO_TRACE_HPP_
