// The verifier of memory plans: examines every pair of values that share bytes. Follows the
// executor's rules step by step to check that all uses of one value end before the other begins.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_VERIFY_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_VERIFY_IPP_

#include <algorithm>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/verify.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// "value 3 'x' (bytes 64 to 128)"
inline std::string DescribePlaced(const char* what, size_t i, const std::vector<std::string>& names,
                                  int64_t address, int64_t bytes) {
  return StrCat(what, " ", i, i < names.size() && !names[i].empty() ? " '" + names[i] + "'" : "",
                " (bytes ", address, " to ", address + bytes, ")");
}

OPKIT_COLD inline std::string FindPlacingFault(const char* what, size_t i,
                                               const std::vector<std::string>& names,
                                               int64_t address, int64_t bytes, int64_t alignment,
                                               int64_t arena_bytes) {
  if (address < 0 || address > arena_bytes || bytes > arena_bytes - address)
    return StrCat(what, " ", i, i < names.size() ? " '" + names[i] + "'" : "", " of ", bytes,
                  " bytes at ", address, " is not inside the arena of ", arena_bytes, " bytes");
  if (address % alignment != 0)
    return StrCat(DescribePlaced(what, i, names, address, bytes), " is not aligned to ", alignment,
                  " bytes");
  return "";
}

inline bool ShareBytes(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// Examines every pair of values that share bytes. A value and its views are one family: the value's
// bytes are needed from the family's first touch to its last.
class RunVerifier {
 public:
  RunVerifier(const RunOrder& run, const IndexedVector<RunValue>& values,
              const std::vector<InPlaceOption>& in_place, const IndexedVector<int64_t>& addresses,
              const std::vector<std::string>& names)
      : run_(run), values_(values), in_place_(in_place), addresses_(addresses), names_(names) {}

  std::string FindFault(int64_t arena_bytes) {
    const size_t n = values_.size();
    if (addresses_.size() != n)
      return StrCat("expected an address for each of ", n, " values, found ", addresses_.size());
    for (size_t i = 0; i < n; ++i) family_.push_back(Family(i));
    for (size_t i = 0; i < n; ++i) {
      const RunValue& value = values_[i];
      if (!Planned(i)) continue;
      const std::string fault =
          FindPlacingFault("value", i, names_, addresses_[i], value.bytes,
                           value.view_of < 0 ? value.alignment : 1, arena_bytes);
      if (!fault.empty()) return fault;
      if (value.view_of >= 0 && addresses_[i] != addresses_[value.view_of] + value.view_offset)
        return StrCat(Describe(i), " is not where it views ", Describe(Index(value.view_of)),
                      ", at byte ", value.view_offset, " of it");
    }
    CollectPairs();
    CheckOrder();
    for (const Pair& pair : pairs_)
      if (!pair.first_precedes && !pair.second_precedes) return Explain(pair);
    return "";
  }

 private:
  // Two values, neither a view, that share bytes. Each flag holds until an order disproves it.
  struct Pair {
    size_t first, second;
    bool first_precedes, second_precedes;
    int early, late;  // steps that disprove the order in which the two are stored
  };

  // Returns the value that value i is a view of, through any number of views; i if it is no view.
  size_t Family(size_t i) const {
    while (values_[i].view_of >= 0) i = Index(values_[i].view_of);
    return i;
  }
  bool Planned(size_t i) const { return !values_[family_[i]].external; }
  std::string Describe(size_t i) const {
    return DescribePlaced("value", i, names_, addresses_[i], values_[i].bytes);
  }

  void CollectPairs() {
    const size_t n = values_.size();
    kept_.assign(n, 0);
    there_.assign(n, 0);
    touches_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t family = family_[i];
      if (values_[i].kept) kept_[family] = 1;
      if (values_[i].producer < 0) there_[family] = 1;
      if (values_[i].producer >= 0) touches_[family].push_back({values_[i].producer, i});
      for (int user : values_[i].users) touches_[family].push_back({user, i});
    }
    for (size_t b = 0; b < n; ++b)
      for (size_t a = 0; Planned(b) && family_[b] == b && a < b; ++a)
        if (Planned(a) && family_[a] == a &&
            ShareBytes(addresses_[a], values_[a].bytes, addresses_[b], values_[b].bytes))
          pairs_.push_back({a, b, !kept_[a] && !there_[b], !kept_[b] && !there_[a], -1, -1});
  }

  // True if `step` may write value b over a value of family a: the step touches that family only by
  // reading this value once, b fits at its address, and the kernel permits the overwriting.
  bool MayOverwrite(int step, size_t a, size_t b) const {
    size_t read = 0;
    int touches = 0;
    for (const Touch& touch : touches_[a]) {
      if (touch.step != step) continue;
      read = touch.value;
      ++touches;
    }
    if (touches != 1 || values_[b].producer != step || addresses_[read] != addresses_[b] ||
        values_[b].bytes > values_[read].bytes)
      return false;
    return std::any_of(in_place_.begin(), in_place_.end(), [&](const InPlaceOption& option) {
      return option.node == step && Index(option.input) == read && Index(option.output) == b;
    });
  }

  // Finds, for 64 steps at a time, which steps start only after these 64 have completed, and
  // updates the pairs. Follows the executor's rules step by step: a step starts after the steps on
  // its edges have completed and the steps of lower stages have returned.
  void CheckOrder() {
    const size_t n = Index(run_.nodes);
    IndexedVector<std::vector<int>> before(n);
    for (size_t e = 0; e < run_.before.size(); ++e) before[run_.after[e]].push_back(run_.before[e]);
    std::vector<uint8_t> touched(values_.size());
    for (size_t first = 0; first < n; first += 64) {
      IndexedVector<uint64_t> started(n, 0),
          completed(n, 0);  // bit k: step first + k has completed
      uint64_t lower_stages = 0, this_stage = 0;
      for (size_t v = first; v < n; ++v) {
        if (!run_.stages.empty() && v > first && run_.stages[v] != run_.stages[v - 1]) {
          lower_stages |= this_stage;
          this_stage = 0;
        }
        started[v] = lower_stages;
        for (int u : before[v]) started[v] |= completed[u];
        completed[v] = started[v] | (v < first + 64 ? uint64_t{1} << (v - first) : 0);
        const bool returns_early = !run_.asynchronous.empty() && run_.asynchronous[v] != 0;
        if (!run_.stages.empty()) this_stage |= returns_early ? started[v] : completed[v];
      }
      for (size_t i = 0; i < values_.size(); ++i)
        touched[i] = std::any_of(touches_[i].begin(), touches_[i].end(), [&](const Touch& touch) {
          return first <= Index(touch.step) && Index(touch.step) < first + 64;
        });
      for (Pair& pair : pairs_) {
        if (!touched[pair.first] && !touched[pair.second]) continue;
        Disprove(first, started, pair.first, pair.second, &pair.first_precedes, &pair);
        Disprove(first, started, pair.second, pair.first, &pair.second_precedes, nullptr);
      }
    }
  }

  // Clears `precedes` if one of the 64 steps touches a, and need not have completed when some step
  // that touches b starts.
  void Disprove(size_t first, const IndexedVector<uint64_t>& started, size_t a, size_t b,
                bool* precedes, Pair* witness) {
    if (!*precedes) return;
    for (const Touch& early : touches_[a]) {
      const size_t bit = Index(early.step);
      if (bit < first || bit >= first + 64) continue;
      for (const Touch& late : touches_[b]) {
        if ((started[late.step] >> (bit - first)) & 1) continue;
        if (late.step == early.step && MayOverwrite(late.step, a, b)) continue;
        *precedes = false;
        if (!witness) return;
        witness->early = early.step;
        witness->late = late.step;
      }
    }
  }

  OPKIT_COLD std::string Explain(const Pair& pair) const {
    std::string text = StrCat(Describe(pair.first), " and ", Describe(pair.second),
                              " share bytes and can be live together: ");
    if (pair.early >= 0)
      return text + StrCat("step ", pair.early,
                           ", which touches the first, need not have completed ", "when step ",
                           pair.late, ", which touches the second, starts");
    return text + (kept_[pair.first] ? "the first is kept to the end of the run"
                                     : "the second is there from the start of the run");
  }

  const RunOrder& run_;
  const IndexedVector<RunValue>& values_;
  const std::vector<InPlaceOption>& in_place_;
  const IndexedVector<int64_t>& addresses_;
  const std::vector<std::string>& names_;
  std::vector<size_t> family_;  // by value: see Family()
  // A family's properties stand at the index of its value that is no view.
  struct Touch {
    int step;
    size_t value;
  };
  std::vector<std::vector<Touch>> touches_;
  std::vector<uint8_t> kept_;   // 1 if the bytes are needed until the end of the run
  std::vector<uint8_t> there_;  // 1 if the bytes are needed from the start of the run
  std::vector<Pair> pairs_;
};

inline void ThrowFault(const std::string& fault) {
  if (!fault.empty()) Throw(ErrorCode::kFailedPrecondition, "the memory plan is wrong: ", fault);
}

}  // namespace detail

OPKIT_INLINE void VerifyMemoryPlan(const detail::RunOrder& run,
                                   const detail::IndexedVector<detail::RunValue>& values,
                                   const std::vector<detail::InPlaceOption>& in_place,
                                   const detail::IndexedVector<int64_t>& addresses,
                                   int64_t arena_bytes, const std::vector<std::string>& names) {
  detail::RunVerifier verifier(run, values, in_place, addresses, names);
  detail::ThrowFault(verifier.FindFault(arena_bytes));
}

OPKIT_INLINE void VerifyMemoryPlan(const std::vector<MemoryInterval>& buffers,
                                   const MemoryConflicts& conflicts, const MemoryPlan& plan) {
  if (plan.offsets.size() != buffers.size())
    detail::ThrowFault(StrCat("expected an offset for each of ", buffers.size(), " buffers, found ",
                              plan.offsets.size()));
  const auto refuse = [&](size_t a, size_t b, const char* why) {
    if (detail::ShareBytes(plan.offsets[a], buffers[a].size, plan.offsets[b], buffers[b].size))
      detail::ThrowFault(
          StrCat(detail::DescribePlaced("buffer", a, {}, plan.offsets[a], buffers[a].size), " and ",
                 detail::DescribePlaced("buffer", b, {}, plan.offsets[b], buffers[b].size),
                 " share bytes and can be live together: ", why));
  };
  for (size_t b = 0; b < buffers.size(); ++b) {
    detail::ThrowFault(detail::FindPlacingFault("buffer", b, {}, plan.offsets[b], buffers[b].size,
                                                buffers[b].alignment, plan.arena_bytes));
    for (size_t a = 0; a < b; ++a)
      if (buffers[a].lower < buffers[b].upper && buffers[b].lower < buffers[a].upper)
        refuse(a, b, "their spans overlap");
    if (conflicts.empty()) continue;
    for (int other : conflicts.of(b))
      refuse(b, detail::Index(other), "they are listed as a conflict");
  }
}

OPKIT_INLINE void VerifyMemoryPlan(const std::vector<MemoryInterval>& intervals,
                                   const MemoryPlan& plan) {
  VerifyMemoryPlan(intervals, {}, plan);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_IMPL_VERIFY_IPP_
