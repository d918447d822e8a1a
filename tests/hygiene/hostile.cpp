// Every header after hostile macros. Its own macros are used too: they expand here.
// clang-format off: the order is the test.
#include "std_headers.hpp"
#include "hostile_macros.hpp"
#include "all_headers.hpp"
// clang-format on

void AmongHostileMacros(int value) {
  OPKIT_ENFORCE(value > 0, "expected a positive value, found ", value);
  OPKIT_ASSERT(value > 0);
}
