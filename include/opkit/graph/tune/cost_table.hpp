// CostTable: what tuning has measured: times by the texts of NodeTimes' keys.
#ifndef OPKIT_GRAPH_TUNE_COST_TABLE_HPP_
#define OPKIT_GRAPH_TUNE_COST_TABLE_HPP_

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class CostTable {
 public:
  // Returns the times of one call in ns; null if there are none.
  const CallTimes* Find(const std::string& key) const {
    SummarizeAdded();
    const auto found = times_.find(key);
    return found == times_.end() ? nullptr : &found->second;
  }
  double Median(const std::string& key, double otherwise) const {
    const CallTimes* const times = Find(key);
    return times ? times->median : otherwise;
  }
  void Add(const std::string& key, const std::vector<double>& ns) {
    CallTimes& times = times_[key];
    times.ns.insert(times.ns.end(), ns.begin(), ns.end());
    added_.insert(key);
  }
  // A time of which only the median and its interval are known.
  void AddSummary(const std::string& key, CallTimes times) {
    added_.erase(key);
    times_[key] = std::move(times);
  }

  // Stores if a kernel computes two nodes together, by the text of the pair.
  void AddPair(const std::string& pair, bool is_fused) {
    (is_fused ? fused_ : unfused_).insert(pair);
  }
  bool IsFused(const std::string& pair) const { return fused_.contains(pair); }
  bool IsUnfused(const std::string& pair) const { return unfused_.contains(pair); }
  // A configuration that a kernel has proposed and then refused.
  void AddRefused(const std::string& key) { refused_.insert(key); }
  bool IsRefused(const std::string& key) const { return refused_.contains(key); }

  const std::unordered_map<std::string, CallTimes>& times() const {
    SummarizeAdded();
    return times_;
  }

 private:
  // Sorts the samples of a key once, not once for each of the many nodes that may do equal work.
  void SummarizeAdded() const {
    for (const std::string& key : added_) Summarize(times_.find(key)->second);
    added_.clear();
  }

  mutable std::unordered_map<std::string, CallTimes> times_;
  mutable std::unordered_set<std::string> added_;  // keys whose summary is out of date
  std::unordered_set<std::string> fused_, unfused_, refused_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_COST_TABLE_HPP_
