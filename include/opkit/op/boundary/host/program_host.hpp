// The host whose functions this image's operators call, and whether the host is another program.
// Separate from op/boundary/host/host_table.hpp, because a library needs no table of its own.
#ifndef OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_
#define OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_

#include <atomic>

#include "opkit/abi/opkit_abi.h"
#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The host functions that this image's operators call: the program's own table, or in a library the
// table that the program passed when it loaded the library. Null before the first function operator
// is registered or loaded.
OPKIT_IMAGE_LOCAL inline constinit const opkit_host* g_host = nullptr;

// The table of the program itself; set by the first call of HostTable::Global(). Relaxed: the
// pointer is only compared.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<const opkit_host*> g_program_host{nullptr};

OPKIT_IMAGE_LOCAL inline bool IsProgramHost(const opkit_host* host) {
  return host && host == g_program_host.load(std::memory_order_relaxed);
}
// True while this thread makes a call for another kind of host (export/). Such a call runs this
// image's own operators, with the program's own table, even if a program has loaded the image as a
// library.
OPKIT_IMAGE_LOCAL inline constinit thread_local bool t_calls_own_operators = false;

// The host that keeps the error texts of this thread's operators.
OPKIT_IMAGE_LOCAL inline const opkit_host* HostOfErrors() {
  return t_calls_own_operators ? g_program_host.load(std::memory_order_relaxed) : g_host;
}

// True if this image is a library that another program has loaded.
OPKIT_IMAGE_LOCAL inline bool IsLoadedLibrary() { return g_host && !IsProgramHost(g_host); }

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_
