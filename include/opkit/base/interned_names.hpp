// Names as numbers for the life of the process: what a library named can be printed after the
// library is gone.
#ifndef OPKIT_BASE_INTERNED_NAMES_HPP_
#define OPKIT_BASE_INTERNED_NAMES_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// The number of a name, from 1; 0 for the empty one. The text is copied and never freed.
// Thread-safe.
uint32_t InternName(std::string_view name);
// The same, but 0 for a new name that finds no room (SetRoomForNames). Thread-safe.
uint32_t InternNameIfRoom(std::string_view name);
// Room for `bytes` of names besides those that there are, as InternNameIfRoom counts it: who makes
// names without end does not fill the memory. Without bound until this is called. Thread-safe.
void SetRoomForNames(int64_t bytes);
// The name of a number that InternName has given; empty for others. Thread-safe.
std::string InternedName(uint32_t number);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/interned_names.ipp"
#endif

#endif  // OPKIT_BASE_INTERNED_NAMES_HPP_
