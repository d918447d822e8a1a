// The definitions of opkit/base/suggest.hpp.
#ifndef OPKIT_BASE_IMPL_SUGGEST_IPP_
#define OPKIT_BASE_IMPL_SUGGEST_IPP_

#include <utility>

#include "opkit/base/suggest.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE size_t EditDistance(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const size_t width = b.size() + 1;
  std::vector<int64_t> rows(3 * width);
  int64_t *before = rows.data(), *previous = before + width, *row = previous + width;
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t differs = lower(a[i - 1]) != lower(b[j - 1]);
      int64_t best = previous[j - 1] + differs;
      if (previous[j] + 1 < best) best = previous[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
      row[j] = best;
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return static_cast<size_t>(previous[b.size()]);
}

OPKIT_INLINE std::string NearestName(std::string_view name,
                                     const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = (name.size() < 6 ? 1 : name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

OPKIT_INLINE std::string SuggestName(std::string_view name,
                                     const std::vector<std::string>& candidates) {
  if (candidates.empty()) return {};
  constexpr size_t kShown = 12;
  const std::string nearest = NearestName(name, candidates);
  std::string out = nearest.empty() ? " (known: " : " (did you mean '" + nearest + "'? known: ";
  for (size_t i = 0; i < candidates.size() && i < kShown; ++i) {
    if (i) out += ", ";
    out += "'" + candidates[i] + "'";
  }
  if (candidates.size() > kShown) out += StrCat(" and ", candidates.size() - kShown, " more");
  return out + ")";
}

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_SUGGEST_IPP_
