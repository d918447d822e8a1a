// Aligns text in columns, for the tables of profiles and of their comparison.
#ifndef OPKIT_PROFILE_TEXT_COLUMNS_HPP_
#define OPKIT_PROFILE_TEXT_COLUMNS_HPP_

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline std::string Microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ns / 1000);
  return text;
}

// Returns the lines with each column as wide as its widest entry. The first `texts` columns are
// aligned on the left, the others on the right.
inline std::string AlignColumns(const std::vector<std::vector<std::string>>& lines, size_t texts) {
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = (std::max)(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - line[i].size(), ' ');
      if (i > 0) out += "  ";
      out += i < texts ? line[i] + pad : pad + line[i];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_TEXT_COLUMNS_HPP_
