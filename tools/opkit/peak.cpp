#include "peak.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "opkit/base/output_file.hpp"
#include "opkit/graph/tune/machine_key.hpp"
#include "opkit/graph/tune/tuning_cache.hpp"
#include "program.hpp"

namespace cli {
namespace {

using namespace opkit;
using Json = nlohmann::json;

constexpr int kVersion = 1;  // of the file; a file of another version counts as an empty one

// Names the machine and the threads that rates belong to.
Json KeyOf(int threads) { return {{"machine", MachineKey()}, {"threads", threads}}; }

// The entries of a file's text; none if it is empty or damaged.
Json PeaksOf(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("version", Json()) != kVersion || !json.contains("peaks") ||
      !json["peaks"].is_array())
    return Json::array();
  return json["peaks"];
}
Json ReadPeaks(const std::string& path) {
  try {
    return PeaksOf(detail::ReadFileIfPresent(path));
  } catch (const Error&) {
    return Json::array();  // what cannot be read cannot be written either, which gets a warning
  }
}

bool HasKey(const Json& entry, const Json& key) {
  return entry.is_object() && entry.value("key", Json()) == key;
}

double PositiveNumber(const Json& object, const char* name) {
  const Json value = object.value(name, Json());
  if (!value.is_number() || !(value.get<double>() > 0))
    throw std::invalid_argument("no positive number");
  return value;
}
// Throws an exception for a damaged entry.
MachineRates RatesOf(const Json& entry, int threads) {
  MachineRates rates;
  rates.threads = threads;
  rates.flops = PositiveNumber(entry, "flops");
  rates.bytes = PositiveNumber(entry, "bytes_per_second");
  rates.disturbed = entry.at("disturbed").get<bool>();
  for (const Json& cache : entry.at("caches"))
    rates.caches.push_back({cache.at("name").get<std::string>(), PositiveNumber(cache, "capacity"),
                            PositiveNumber(cache, "bytes_per_second")});
  return rates;
}

void Keep(const std::string& path, const Json& key, const MachineRates& rates) {
  Json entry = {{"key", key},
                {"flops", rates.flops},
                {"bytes_per_second", rates.bytes},
                {"disturbed", rates.disturbed},
                {"caches", Json::array()}};
  for (const CacheCeiling& cache : rates.caches)
    entry["caches"].push_back({{"name", cache.name},
                               {"capacity", cache.capacity},
                               {"bytes_per_second", cache.bytes_per_second}});
  try {
    detail::UpdateFile(path, [&](std::string_view text) {
      Json peaks = Json::array({entry});
      for (const Json& other : PeaksOf(text))
        if (!HasKey(other, key)) peaks.push_back(other);
      const Json file = {{"version", kVersion}, {"peaks", peaks}};
      return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    });
  } catch (const Error& failed) {
    std::fprintf(stderr, "opkit: warning: the measured peak is not kept: %s\n",
                 Describe(failed).c_str());
  }
}

}  // namespace

void AddMeasurePeakOption(CLI::App& app, bool* measure) {
  app.add_flag("--measure-peak", *measure,
               "Measures the processor's peak again, instead of reading peak.json beside the "
               "tuning cache");
}

std::string PeakFile() {
  const std::string cache = TuningCache::DefaultPath();
  if (cache.empty()) return {};
  return (std::filesystem::path(cache).parent_path() / "peak.json").string();
}

MachineRates PeakOf(int threads, bool measure) {
  const std::string path = PeakFile();
  const Json key = KeyOf(threads);
  if (!measure && !path.empty()) {
    for (const Json& entry : ReadPeaks(path)) try {
        if (!HasKey(entry, key)) continue;
        const MachineRates rates = RatesOf(entry, threads);
        if (!rates.disturbed) return rates;
      } catch (const std::exception&) {
        continue;  // a damaged entry
      }
  }
  const MachineRates rates =
      FailWith(ExitCode::kRunFailed, "", [&] { return MachinePeak(threads); });
  if (rates.disturbed)
    std::fprintf(stderr,
                 "opkit: warning: the machine was busy while the peak of %s was measured, which "
                 "may be too low\n",
                 Counted(static_cast<size_t>(threads), "thread").c_str());
  if (!path.empty()) Keep(path, key, rates);
  return rates;
}

}  // namespace cli
