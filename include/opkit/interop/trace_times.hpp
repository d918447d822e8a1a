// The times of a trace that was written to a file, for CompareTimes. The definitions need
// nlohmann/json; with CMake the target opkit::json holds them.
#ifndef OPKIT_INTEROP_TRACE_TIMES_HPP_
#define OPKIT_INTEROP_TRACE_TIMES_HPP_

#include "opkit/profile/profile_diff.hpp"

namespace opkit::inline OPKIT_ABI {

// What TimesByName gives for the profile that a Chrome trace was made of. Traces of other programs
// (JSON Object and JSON Array Format of Google's "Trace Event Format") have the durations of their
// complete events ("ph": "X"), of their events B until the E that ends them on the same thread, and
// of their asynchronous ones, b until e and S until F, by category and id. What begins and does not
// end is left out. An array may lack its end, as a program leaves it that ends while it writes.
// Errors: as MapFile; kInvalidArgument where it is no such trace, or a Perfetto trace, with the
// place.
//
//   std::puts(ToString(CompareTimes(ReadTraceTimes("old.json"),
//   ReadTraceTimes("new.json"))).c_str());
std::vector<NamedTimes> ReadTraceTimes(const std::string& path, bool by_node = false);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/trace_times.ipp"
#endif

#endif  // OPKIT_INTEROP_TRACE_TIMES_HPP_
