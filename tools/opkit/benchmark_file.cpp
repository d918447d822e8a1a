#include "benchmark_file.hpp"

#include <nlohmann/json.hpp>

#include "opkit/interop/mapped_file.hpp"
#include "program.hpp"

namespace cli {
namespace {

using namespace opkit;
using nlohmann::json;

// Returns the member, a text; nullopt if it is absent or something else.
std::optional<std::string> TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get<std::string>();
}

double NsOf(const std::string& unit) {
  return unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
}

}  // namespace

std::vector<NamedTimes> ReadBenchmarkTimes(const std::string& path) {
  const auto bad = [&](const std::string& why, const std::string& hint = {}) {
    return Failure(ExitCode::kBadFile, "'" + path + "' is no JSON of Google Benchmark: " + why,
                   hint);
  };
  const Storage file = FailWith(ExitCode::kBadFile, "", [&] { return MapFile(path); });
  const json all = json::parse(BytesOf(file), nullptr, false);
  if (all.is_discarded()) throw bad("it is no JSON at all, or a part of one");
  const auto list = all.is_object() ? all.find("benchmarks") : all.end();
  if (all.is_object() && list == all.end() && all.contains("median_ms"))
    throw bad("it is the JSON of opkit bench MODEL, which has no time of a single run",
              "for a model, record opkit run --profile FILE and use opkit trace diff");
  if (!all.is_object() || list == all.end() || !list->is_array())
    throw bad("it has no list \"benchmarks\"");
  std::vector<NamedTimes> out;
  for (const json& one : *list) {
    if (!one.is_object()) throw bad("an entry of \"benchmarks\" is no object");
    if (TextOf(one, "run_type").value_or("iteration") != "iteration") continue;
    const std::optional<std::string> name = TextOf(one, "name");
    if (!name) throw bad("a benchmark has no name");
    if (const auto error = one.find("error_occurred"); error != one.end() && *error == true)
      continue;
    const auto time = one.find("real_time");
    if (time == one.end() || !time->is_number()) throw bad("'" + *name + "' has no real_time");
    const double ns = NsOf(TextOf(one, "time_unit").value_or("ns"));
    if (ns == 0)
      throw bad("'" + *name + "' has a time_unit that is none of \"ns\", \"us\", \"ms\" and \"s\"");
    out.push_back({*name, {ns * time->get<double>()}});
  }
  if (out.empty())
    throw bad(
        "it has no repetition",
        "record without --benchmark_report_aggregates_only, and with --benchmark_repetitions=10");
  return out;
}

}  // namespace cli
