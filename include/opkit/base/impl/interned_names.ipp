// The table of interned names.
#ifndef OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
#define OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_

#include <cstring>

#include "opkit/base/interned_names.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/registration/own_names.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The table of names, made at first use.
struct InternedNames {
  Mutex mutex;
  NameIndex names;
  int64_t room = INT64_MAX;

  // Never destroyed at the end of the process: threads may still intern names then.
  static InternedNames& Global() {
    static InternedNames* table = [] {
      auto* made = new InternedNames;
      made->names.Add("");
      g_delete_names.Fill([] { delete &Global(); });
      pthread_atfork([] { Global().mutex.Lock(); }, [] { Global().mutex.Unlock(); },
                     [] { Global().mutex.ResetAfterFork(); });
      return made;
    }();
    return *table;
  }
};

// A name that this thread interned recently; the search takes no lock. A scope in a loop interns
// the same name in every iteration.
struct RecentName {
  uint32_t number;
  uint32_t size;
  char text[24];
};
inline constinit thread_local RecentName t_recent_names[64] = {};

inline uint32_t NumberOfName(std::string_view name, bool only_if_room) {
  // Bytes of a name in addition to its text: the string object and index slots.
  constexpr int64_t kBytesBeside = 64;
  if (name.empty()) return 0;
  // Hashed by address: most names are literals or long-lived strings.
  const auto place = reinterpret_cast<uintptr_t>(name.data()) >> 2;
  RecentName& recent = t_recent_names[(place ^ place >> 6) % 64];
  if (recent.size == name.size() && std::memcmp(recent.text, name.data(), name.size()) == 0)
    return recent.number;
  InternedNames& table = InternedNames::Global();
  MutexLock lock(table.mutex);
  int found = table.names.Find(name);
  if (found < 0) {
    const int64_t bytes = static_cast<int64_t>(name.size()) + kBytesBeside;
    if (only_if_room && table.room < bytes) return 0;
    table.room -= bytes;
    found = table.names.Add(name);
  }
  const auto number = static_cast<uint32_t>(found);
  if (name.size() <= sizeof recent.text) {
    recent.number = number;
    recent.size = static_cast<uint32_t>(name.size());
    std::memcpy(recent.text, name.data(), name.size());
  }
  return number;
}

}  // namespace detail

OPKIT_INLINE uint32_t InternName(std::string_view name) {
  return detail::NumberOfName(name, false);
}
OPKIT_INLINE uint32_t InternNameIfRoom(std::string_view name) {
  return detail::NumberOfName(name, true);
}
OPKIT_INLINE void SetRoomForNames(int64_t bytes) {
  detail::InternedNames& table = detail::InternedNames::Global();
  detail::MutexLock lock(table.mutex);
  table.room = bytes;
}
OPKIT_INLINE std::string InternedName(uint32_t number) {
  detail::InternedNames& table = detail::InternedNames::Global();
  detail::MutexLock lock(table.mutex);
  const int at = static_cast<int>(number);
  return at >= 0 && at < table.names.size() ? table.names[at] : std::string();
}

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
