// A profile as a Chrome trace: JSON that Perfetto (https://ui.perfetto.dev) and chrome://tracing
// show.
#ifndef OPKIT_PROFILE_CHROME_TRACE_HPP_
#define OPKIT_PROFILE_CHROME_TRACE_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {

// The trace event format's JSON object form. Spans are complete events (X) on the track of their
// thread; the time in which a custom operator's own code runs is a slice "MyOp::user_code" inside
// it. What goes on after its span is an async pair (b, e) that ends with the operator's event;
// arrows (bind_id) lead from the push of a task, a complete event without duration, to its run.
// Times are microseconds with three decimals. Bytes of a name that are no UTF-8 become U+FFFD; a
// counter's values that are no finite numbers are left out.
// Error: kFailedPrecondition where the file cannot be written.
void WriteChromeTrace(const Profile& profile, const std::string& path);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/chrome_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_CHROME_TRACE_HPP_
