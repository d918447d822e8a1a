// Detects programs that mix header-only and compiled units (config.hpp). Each kind has its own
// registries, so an operator of one kind would be missing in the other. Each unit leaves a marker
// symbol of its kind in the program or shared library; the registries look for the marker of the
// other kind.
#ifndef OPKIT_BASE_IMAGE_MODE_HPP_
#define OPKIT_BASE_IMAGE_MODE_HPP_

#include "opkit/config.hpp"

// The symbols are hidden: a program and a library that it loads may be of different kinds, and must
// not see each other's markers.
extern "C" {
#ifdef OPKIT_COMPILED
__attribute__((used)) OPKIT_IMAGE_LOCAL inline char opkit_unit_is_compiled = 0;
__attribute__((weak)) OPKIT_IMAGE_LOCAL extern char opkit_unit_is_header_only;
#else
__attribute__((used)) OPKIT_IMAGE_LOCAL inline char opkit_unit_is_header_only = 0;
__attribute__((weak)) OPKIT_IMAGE_LOCAL extern char opkit_unit_is_compiled;
#endif
}

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if a unit of the other kind is linked into this program or shared library.
inline bool ImageMixesModes() {
#ifdef OPKIT_COMPILED
  char* volatile other = &opkit_unit_is_header_only;
#else
  char* volatile other = &opkit_unit_is_compiled;
#endif
  return other;
}

inline constexpr const char* kMixedModes =
    "this program or shared library mixes units that are header-only with units that define "
    "OPKIT_COMPILED, and each kind has registries of its own: define OPKIT_COMPILED for all of "
    "them (in CMake all link opkit::opkit) or for none (all link opkit::header_only)";

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMAGE_MODE_HPP_
