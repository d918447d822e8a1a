// A profile as a native Perfetto trace: a quarter of the JSON's size, for https://ui.perfetto.dev.
#ifndef OPKIT_PROFILE_PERFETTO_TRACE_HPP_
#define OPKIT_PROFILE_PERFETTO_TRACE_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {

// The protocol buffers of perfetto.protos.Trace, with interned names and times as differences on
// each thread. Slices, counters, markers and arrows are those of WriteChromeTrace; what goes on
// after its span is a slice on a track "asynchronous", as many as run at once. A slice has its
// invocation's id where another track refers to it.
// Error: kFailedPrecondition where the file cannot be written.
void WritePerfettoTrace(const Profile& profile, const std::string& path);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/perfetto_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_PERFETTO_TRACE_HPP_
