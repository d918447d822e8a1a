// SamePlace: true if two registrations stand at the same place of the source. Registries need this
// because a header with a registration registers once in every unit that includes the header.
#ifndef OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_
#define OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_

#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the folder and name of a header ("ops/exp.hpp"), the whole path of any other file. An
// installed header and the copy in a library's build share only these two parts of the path.
OPKIT_COLD inline std::string_view PlaceOfFile(std::string_view file) {
  while (file.substr(0, 2) == "./") file.remove_prefix(2);
  const size_t dot = file.rfind('.');
  if (dot == file.npos || file.substr(dot + 1, 1) != "h") return file;
  const size_t name = file.rfind('/');
  const size_t folder = name == file.npos || name == 0 ? file.npos : file.rfind('/', name - 1);
  return folder == file.npos ? file : file.substr(folder + 1);
}
OPKIT_COLD inline bool SamePlace(std::string_view file_a, int line_a, std::string_view file_b,
                                 int line_b) {
  return line_a == line_b && PlaceOfFile(file_a) == PlaceOfFile(file_b);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_
