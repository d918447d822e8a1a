// Version 1.0's header has the layout that abi_pins.hpp says, and its structs have exactly the
// sizes that readers of a library's structs rely on. Compiled, never run.
#include "abi_v1/opkit/abi/opkit_abi.h"  // in place of the present one

#include "abi_pins.hpp"

static_assert(OPKIT_ABI_MINOR == 0);
