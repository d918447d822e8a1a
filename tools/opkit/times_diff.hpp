// The comparison of two sets of times, as `opkit trace diff`, `opkit bench compare` and
// `opkit bench-op --compare` print it.
#ifndef OPKIT_TOOLS_OPKIT_TIMES_DIFF_HPP_
#define OPKIT_TOOLS_OPKIT_TIMES_DIFF_HPP_

#include <optional>
#include <vector>

#include "opkit/profile/profile_diff.hpp"

namespace CLI {
class App;
}

namespace cli {

struct TimesDiffOptions {
  double significance = 0.01;
  std::optional<double> fail_above;  // percent
  bool json = false;                 // prints JSON instead of a table
};

// Adds --significance, --fail-above, and --json if `json`. The help calls a row `row`: "an
// operator".
void AddTimesDiffOptions(CLI::App& app, const char* row, bool json, TimesDiffOptions* options);

// Compares by CompareTimes and prints the rows. Then throws a Failure: kRunFailed, with the names
// of the rows that are significantly slower by more than --fail-above, and kBadFile if --fail-above
// has no row to look at, because no name has times on both sides.
void PrintTimesDiff(const std::vector<opkit::NamedTimes>& before,
                    const std::vector<opkit::NamedTimes>& after, const TimesDiffOptions& options);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TIMES_DIFF_HPP_
