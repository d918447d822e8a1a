// "Did you mean …?": the known name nearest to an unknown one, for error messages.
#ifndef OPKIT_BASE_SUGGEST_HPP_
#define OPKIT_BASE_SUGGEST_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {

// Edit distance (Damerau-Levenshtein in its optimal string alignment form) that ignores case.
OPKIT_COLD size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" when none is near enough to be a slip (a third of its
// letters, at least one).
OPKIT_COLD std::string NearestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

// " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" when nothing is known.
OPKIT_COLD std::string SuggestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/suggest.ipp"
#endif

#endif  // OPKIT_BASE_SUGGEST_HPP_
