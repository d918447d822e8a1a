// IsProgramHost: whether a library's host is the program that the library's source is part of.
// Apart from op/abi/host_table.hpp, since a library needs no table of its own.
#ifndef OPKIT_OP_ABI_PROGRAM_HOST_HPP_
#define OPKIT_OP_ABI_PROGRAM_HOST_HPP_

#include <atomic>

#include "opkit/abi/opkit_abi.h"
#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// This program's own table, from the first call of ProgramHost() on. Relaxed: nothing is read by
// it.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<const opkit_host*> g_program_host{nullptr};

OPKIT_IMAGE_LOCAL inline bool IsProgramHost(const opkit_host* host) {
  return host && host == g_program_host.load(std::memory_order_relaxed);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_PROGRAM_HOST_HPP_
