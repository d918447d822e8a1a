// ReadTraceTimes: reads the durations in a trace file, for CompareTimes.
#ifndef OPKIT_TOOLS_OPKIT_TRACE_TIMES_HPP_
#define OPKIT_TOOLS_OPKIT_TRACE_TIMES_HPP_

#include "opkit/profile/profile_diff.hpp"

namespace cli {

// Returns the durations by name in a Chrome trace; for a trace of opkit the same as TimesByName of
// the profile. For traces of other programs (JSON Object and JSON Array Format of Google's "Trace
// Event Format") returns three kinds of durations: complete events ("ph": "X"); events B until the
// E that ends them on the same thread; asynchronous events, b until e and S until F, by category
// and id. Leaves out events that begin and do not end. An array may lack its end, as after a crash
// of the program that wrote it. Throws the errors of MapFile, and kInvalidArgument, with the place,
// for a file that is no such trace, for example a Perfetto trace.
//
//   std::puts(ToString(CompareTimes(ReadTraceTimes("old.json"),
//   ReadTraceTimes("new.json"))).c_str());
std::vector<opkit::NamedTimes> ReadTraceTimes(const std::string& path,
                                              opkit::TimesOf of = opkit::TimesOf::kOperators);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TRACE_TIMES_HPP_
