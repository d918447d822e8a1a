// SamePlace: whether two registrations stand at one place of the source. Registries ask it, since a
// header that registers something does so in every unit that includes it.
#ifndef OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_
#define OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_

#include <string_view>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The folder and the name of a header, "ops/exp.hpp": all that is the same of it where it is
// installed and where a library was built with it. Other files are known by their whole path.
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_
