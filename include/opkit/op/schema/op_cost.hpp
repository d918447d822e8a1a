// OpCost: the work of one run of an operator, the same for every device.
#ifndef OPKIT_OP_SCHEMA_OP_COST_HPP_
#define OPKIT_OP_SCHEMA_OP_COST_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The work of one run, for benchmarks, profiles and selection.
struct OpCost {
  uint64_t flops = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t params_bytes = 0;
};

}}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_OP_COST_HPP_
