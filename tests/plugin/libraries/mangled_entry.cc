// The entry has C++ linkage, so that the loader does not find it.
#include "opkit/abi/opkit_abi.h"

const opkit_library* opkit_library_entry(const opkit_host*) { return nullptr; }
