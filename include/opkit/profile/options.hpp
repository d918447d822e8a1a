// ProfileOptions: what a profiler records, and how much of it is kept.
#ifndef OPKIT_PROFILE_OPTIONS_HPP_
#define OPKIT_PROFILE_OPTIONS_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

struct ProfileOptions {
  // Of records, 48 bytes each. What comes when they are used up is dropped and counted, or takes
  // the place of the oldest of its thread where `ring`.
  int64_t max_bytes = int64_t{1} << 30;
  bool ring = false;
};

}  // namespace opkit

#endif  // OPKIT_PROFILE_OPTIONS_HPP_
