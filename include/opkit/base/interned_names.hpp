// Interned names: each name has a number for the life of the process. The name of a library's
// object can be printed after the library is unloaded.
#ifndef OPKIT_BASE_INTERNED_NAMES_HPP_
#define OPKIT_BASE_INTERNED_NAMES_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the number of a name, from 1; 0 for the empty name. Copies the text and never frees it.
// Thread-safe.
uint32_t InternName(std::string_view name);
// Returns the number of a name like InternName, but 0 for a new name beyond the limit of
// SetRoomForNames. Thread-safe.
uint32_t InternNameIfRoom(std::string_view name);
// Limits the memory of further names to `bytes`, in case a caller makes new names without end.
// InternName ignores the limit, but its names count towards it. Without a call there is no limit.
// Thread-safe.
void SetRoomForNames(int64_t bytes);
// Returns the name with this number of InternName; empty for an unknown number. Thread-safe.
std::string InternedName(uint32_t number);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/interned_names.ipp"
#endif

#endif  // OPKIT_BASE_INTERNED_NAMES_HPP_
