// ReadBenchmarkTimes: reads the times in a file of Google Benchmark's JSON, for CompareTimes.
#ifndef OPKIT_TOOLS_OPKIT_BENCHMARK_FILE_HPP_
#define OPKIT_TOOLS_OPKIT_BENCHMARK_FILE_HPP_

#include <string>
#include <vector>

#include "opkit/profile/profile_diff.hpp"

namespace cli {

// Returns the real time of each repetition in ns, an entry for each, by the benchmark's name. The
// file is that of `opkit bench-op --json`, or of any program with Google Benchmark
// (--benchmark_out=FILE --benchmark_repetitions=N). Leaves out aggregates, such as the mean, and
// benchmarks that report an error. Throws a Failure (kBadFile) with the reason for a file that is
// no such JSON, and for one without a single repetition.
std::vector<opkit::NamedTimes> ReadBenchmarkTimes(const std::string& path);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_BENCHMARK_FILE_HPP_
