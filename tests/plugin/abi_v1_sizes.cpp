// The frozen header of version 1.0 has the layout that abi_pins.hpp says, and its structs the sizes
// that the checks of a library's structs take for version 1.0's. Compiled, never run.
#include "abi_v1/opkit/abi/opkit_abi.h"  // in place of the present one

#include "abi_pins.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"

static_assert(OPKIT_ABI_MINOR == 0);
using namespace opkit::detail;  // NOLINT: eight constants
static_assert(kOpBytes == sizeof(opkit_op) && kKernelBytes == sizeof(opkit_kernel) &&
              kLibraryBytes == sizeof(opkit_library) &&
              kParameterBytes == sizeof(opkit_parameter) && kAttrBytes == sizeof(opkit_attr) &&
              kTensorBytes == sizeof(opkit_tensor) && kNodeBytes == sizeof(opkit_node) &&
              kGraphBytes == sizeof(opkit_graph));
