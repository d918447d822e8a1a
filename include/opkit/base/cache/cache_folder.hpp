// UserCacheFolder: the place of files that the toolkit can make again.
#ifndef OPKIT_BASE_CACHE_CACHE_FOLDER_HPP_
#define OPKIT_BASE_CACHE_CACHE_FOLDER_HPP_

#include <cstdlib>
#include <string>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns an environment variable; an empty text if it is not set.
inline std::string VariableOf(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Returns $XDG_CACHE_HOME/opkit, else $HOME/.cache/opkit; an empty text without these variables.
inline std::string UserCacheFolder() {
  // The XDG Base Directory Specification ignores a path that is not absolute.
  if (const std::string cache = VariableOf("XDG_CACHE_HOME"); cache.starts_with('/'))
    return cache + "/opkit";
  const std::string home = VariableOf("HOME");
  return home.empty() ? home : home + "/.cache/opkit";
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_CACHE_FOLDER_HPP_
