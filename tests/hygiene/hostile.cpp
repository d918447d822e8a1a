// Every header after hostile macros. Its macros are used too: they expand here.
#include "std_headers.hpp"
// Not before the line above.
#include "hostile_macros.hpp"
// Not before the line above.
#include "all_headers.hpp"

void AmongHostileMacros(int value) {
  OPKIT_ENFORCE(value > 0, "expected a positive value, found ", value);
  OPKIT_ASSERT(value > 0);
}
