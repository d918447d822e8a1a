#include "times_diff.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "file.hpp"
#include "program.hpp"

namespace cli {

using namespace opkit;

void AddTimesDiffOptions(CLI::App& app, const char* row, bool json, TimesDiffOptions* options) {
  app.add_option("--significance", options->significance,
                 "Sets the largest p-value of a significant difference")
      ->check(CLI::Range(1e-9, 0.5))
      ->option_text("P=0.01");
  app.add_option("--fail-above", options->fail_above,
                 StrCat("Exits with code 1 if ", row,
                        " is significantly slower than before by more than PERCENT"))
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("PERCENT");
  if (json) app.add_flag("--json", options->json, "Prints JSON instead of a table");
}

void PrintTimesDiff(const std::vector<NamedTimes>& before, const std::vector<NamedTimes>& after,
                    const TimesDiffOptions& options) {
  ProfileDiff diff = FailWith(ExitCode::kBadFile, "",
                              [&] { return CompareTimes(before, after, options.significance); });
  if (options.json) {
    WriteFile("-", ToJson(diff) + "\n");
  } else {
    for (ProfileDiffRow& row : diff.rows) row.name = Printable(row.name);
    WriteFile("-", ToString(diff));
  }
  if (!options.fail_above) return;
  if (std::ranges::none_of(diff.rows, [](const ProfileDiffRow& row) {
        return row.runs_before > 0 && row.runs_after > 0;
      }))
    throw Failure(ExitCode::kBadFile,
                  "--fail-above has nothing to compare: no name is on both sides");
  std::string slower;
  for (const ProfileDiffRow& row : diff.rows)
    if (row.verdict == ProfileDiffRow::Verdict::kSlower && 100 * row.change > *options.fail_above)
      slower += (slower.empty() ? "" : ", ") + row.name;
  if (!slower.empty())
    throw Failure(ExitCode::kRunFailed,
                  StrCat("slower by more than ", *options.fail_above, " %: ", slower));
}

}  // namespace cli
