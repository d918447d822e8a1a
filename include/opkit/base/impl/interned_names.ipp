// The table of interned names.
#ifndef OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
#define OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_

#include "opkit/base/interned_names.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct InternedNames {
  Mutex mutex;
  NameIndex names;

  // Not destroyed: threads may still name things while the process ends.
  static InternedNames& Get() {
    static InternedNames* table = [] {
      auto* made = new InternedNames;
      made->names.Add("");
      pthread_atfork([] { Get().mutex.Lock(); }, [] { Get().mutex.Unlock(); },
                     [] { Get().mutex.ResetAfterFork(); });
      return made;
    }();
    return *table;
  }
};

}  // namespace detail

OPKIT_INLINE uint32_t InternName(std::string_view name) {
  detail::InternedNames& table = detail::InternedNames::Get();
  detail::MutexLock lock(table.mutex);
  return static_cast<uint32_t>(table.names.Add(name));
}

OPKIT_INLINE std::string InternedName(uint32_t number) {
  detail::InternedNames& table = detail::InternedNames::Get();
  detail::MutexLock lock(table.mutex);
  const int at = static_cast<int>(number);
  return at >= 0 && at < table.names.size() ? table.names[at] : std::string();
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
