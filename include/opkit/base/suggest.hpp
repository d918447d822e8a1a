// "Did you mean …?": the known name nearest to an unknown one, for error messages.
#ifndef OPKIT_BASE_SUGGEST_HPP_
#define OPKIT_BASE_SUGGEST_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the edit distance (Damerau-Levenshtein in its optimal string alignment form), ignoring
// case.
OPKIT_COLD size_t EditDistance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `name`, or "" if none is near enough to be a slip: at most a
// third of the letters of `name` differ, or one letter.
OPKIT_COLD std::string NearestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

// Returns " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" if there are no candidates.
OPKIT_COLD std::string SuggestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/suggest.ipp"
#endif

#endif  // OPKIT_BASE_SUGGEST_HPP_
