// Where every member of the ABI lies: it stays there, and a struct grows only at its end, in a
// later version. Included once, where the header is: the present one, a later one or version 1.0's.
#ifndef OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_
#define OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_

#include <cstddef>

#include "opkit/op/boundary/convert/abi_structs.hpp"

#define OPKIT_PIN(type, member, at) \
  static_assert(offsetof(type, member) == (at), "the ABI has moved " #type "." #member)
#define OPKIT_PIN_SIZE(type)                                                               \
  static_assert(OPKIT_ABI_MINOR == 0 ? sizeof(type) == ::opkit::detail::kFirstBytes<type>  \
                                     : sizeof(type) >= ::opkit::detail::kFirstBytes<type>, \
                "the ABI has changed " #type " without a new version")
static_assert(OPKIT_ABI_MAJOR == 1);
#include "abi_members.inc"
#undef OPKIT_PIN
#undef OPKIT_PIN_SIZE

#endif  // OPKIT_TESTS_PLUGIN_ABI_PINS_HPP_
