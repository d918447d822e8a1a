// TuningCache: a file of what was measured on a machine. It has the times of kernels, by a text
// that names the configuration, and the plans that tuning found, by a text that names the graph.
// Compile reads it when it makes a plan; a run never reads it.
#ifndef OPKIT_GRAPH_TUNE_TUNING_CACHE_HPP_
#define OPKIT_GRAPH_TUNE_TUNING_CACHE_HPP_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "opkit/base/platform.hpp"
#include "opkit/graph/tune/machine_key.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The measured time of one configuration of a kernel.
struct MeasuredTime {
  // The median and its confidence interval: 0 <= low <= median <= high, finite.
  double median_ns = 0, low_ns = 0, high_ns = 0;
  int64_t samples = 0;
  int64_t bytes = 0;    // memory that the configuration needs; 0: none or unknown
  int64_t unix_ms = 0;  // when it was measured, in ms since 1970; 0: when it is added
};

// The plan that tuning found for a graph.
struct TunedPlan {
  std::string selection;                // ToString of the Selection
  double tuned_ns = 0, default_ns = 0;  // of a whole run, in the same measurement
  int64_t unix_ms = 0;                  // as in MeasuredTime
};

namespace detail {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

// The entries of one machine.
struct TuningEntries {
  TextMap<MeasuredTime> times;
  TextMap<TunedPlan> plans;
  size_t size() const { return times.size() + plans.size(); }
};
// The entries of a file by machine, in alphabetical order.
using TuningMachines = std::map<std::string, TuningEntries, std::less<>>;

}  // namespace detail

// Finds and adds entries of one machine. A file may have entries of other machines, which share a
// home folder; Save keeps them. Of two entries with the same key, every function keeps the newer
// one. A key may be any text of UTF-8, of any length. The functions may be called from several
// threads at once.
//
//   TuningCache cache(TuningCache::DefaultPath());
//   std::optional<MeasuredTime> time = cache.FindTime(key);
//   if (!time) cache.AddTime(key, *(time = Measure()));
//   cache.Save();
//   for (const std::string& warning : cache.warnings()) …
//
// The contents of a file never cause an error: a damaged entry, and a file that is damaged, of
// another kind or of another schema, is as if it were not there, and a warning says so.
class TuningCache {
 public:
  // Reads the file if there is one. With an empty path the cache is in memory only. `machine` names
  // the machine of the entries, but no number of threads: a caller whose times depend on that
  // number writes it into its keys.
  explicit TuningCache(std::string path, std::string machine = MachineKey());

  // Returns $OPKIT_TUNING_CACHE, else $XDG_CACHE_HOME/opkit/tuning.json, else
  // $HOME/.cache/opkit/tuning.json; an empty text if none of these variables is set.
  static std::string DefaultPath();

  const std::string& path() const { return path_; }
  const std::string& machine() const { return machine_; }
  // The number of entries of this machine.
  size_t size() const;

  // A lookup takes about 0.3 us, with 20,000 entries and a key of 300 bytes; reading that file
  // takes 30 ms.
  std::optional<MeasuredTime> FindTime(std::string_view key) const;
  std::optional<TunedPlan> FindPlan(std::string_view key) const;

  // Adds an entry, or replaces an older one of the same key. Throws kInvalidArgument for a value
  // that no measurement has, such as NaN.
  void AddTime(std::string_view key, MeasuredTime time);
  void AddPlan(std::string_view key, TunedPlan plan);

  // Writes what was added since the last Save, if anything was. Under a lock it first takes over
  // what other processes have written meanwhile, so that no entry is lost, and then replaces the
  // file: after a crash or a kill the file is the old one or the new one. A failure, such as a full
  // disk, is a warning: the call returns false and the old file is whole. A file that is no tuning
  // cache, or one of a newer opkit, is left as it is.
  bool Save();

  // Takes over the entries of another file, of all machines. Returns how many were new or newer.
  // Throws kIo if the file cannot be read, kInvalidArgument if it is no tuning cache of this
  // schema; damaged entries are a warning.
  size_t MergeFrom(const std::string& path);
  // Writes the entries to another file, of this machine only or of all. Throws kIo.
  void Export(const std::string& path, bool machine_only = false) const;

  // Returns what went wrong so far, one sentence each.
  std::vector<std::string> warnings() const;

 private:
  // The caller of these has the lock.
  void Warn(std::string warning);
  size_t Merge(detail::TuningMachines machines);

  const std::string path_, machine_;
  mutable detail::Mutex mutex_;
  detail::TuningMachines machines_;
  detail::TuningEntries& mine_;      // the part of `machines_`
  int64_t changes_ = 0, saved_ = 0;  // additions so far, and those that the file has
  std::vector<std::string> warnings_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/tuning_cache.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_TUNING_CACHE_HPP_
