// The table of interned names.
#ifndef OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
#define OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_

#include <deque>
#include <string>
#include <unordered_map>

#include "opkit/base/interned_names.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct InternedNames {
  Mutex mutex;
  std::deque<std::string> names{""};  // its strings never move
  std::unordered_map<std::string_view, uint32_t> numbers{{"", 0}};

  // Not destroyed: threads may still name things while the process ends.
  static InternedNames& Get() {
    static InternedNames* table = [] {
      auto* made = new InternedNames;
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
  if (const auto found = table.numbers.find(name); found != table.numbers.end())
    return found->second;
  const auto number = static_cast<uint32_t>(table.names.size());
  table.numbers.emplace(table.names.emplace_back(name), number);
  return number;
}

OPKIT_INLINE std::string_view InternedName(uint32_t number) {
  detail::InternedNames& table = detail::InternedNames::Get();
  detail::MutexLock lock(table.mutex);
  return number < table.names.size() ? std::string_view(table.names[number]) : std::string_view();
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
