// NamedParts: what a program and its libraries register by name and take away again: partitioners,
// passes. Registration never throws, for static initialisers.
#ifndef OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_
#define OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_

#include "opkit/base/error.hpp"
#include "opkit/base/name_map.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/base/registration/source_place.hpp"
#include "opkit/base/suggest.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Part is RefCounted and has `const std::string& name() const`. Thread-safe.
template <class Part>
class NamedParts {
 public:
  // `what` is the kind in messages, `how` the macro that registers one.
  NamedParts(const char* what, const char* how) : what_(what), how_(how) {}

  // False where the name is there already: at the same place twice it is one, since a header may
  // register; at two places it is an Error where it is used.
  bool Register(IntrusivePtr<const Part> part, const char* file, int line) noexcept try {
    MutexLock lock(mutex_);
    const std::string& name = part->name();
    Row& first = rows_[name];
    const bool is_new = !first.part;
    if (is_new)
      first = {part, file, line, {}};
    else if (!SamePlace(first.file, first.line, file, line))
      first.problem = StrCat(what_, " '", name, "' is registered at ", first.file, ":", first.line,
                             " and at ", file, ":", line, "; rename one of them");
    return is_new;
  } catch (...) {
    return false;
  }
  // False where it is not registered.
  bool Unregister(const Part& part) noexcept {
    MutexLock lock(mutex_);
    return rows_.EraseIf([&](const auto& row) { return row.value.part.get() == &part; });
  }
  // Errors: kNotFound with the nearest name, kAlreadyExists for a name registered at two places.
  IntrusivePtr<const Part> Get(std::string_view name) const {
    {
      MutexLock lock(mutex_);
      if (const Row* row = rows_.Find(name)) {
        if (!row->problem.empty()) Throw(ErrorCode::kAlreadyExists, row->problem);
        return row->part;
      }
    }
    const std::vector<std::string> names = Names();
    Throw(ErrorCode::kNotFound, "no ", what_, " '", name, "' is registered",
          names.empty() ? StrCat("; ", how_, " registers one") : SuggestName(name, names));
  }
  bool Has(std::string_view name) const {
    MutexLock lock(mutex_);
    return rows_.Has(name);
  }
  // In alphabetical order.
  std::vector<std::string> Names() const {
    MutexLock lock(mutex_);
    return rows_.Names();
  }

 private:
  struct Row {
    IntrusivePtr<const Part> part;
    const char* file = nullptr;
    int line = 0;
    std::string problem;
  };

  const char* const what_;
  const char* const how_;
  mutable Mutex mutex_;
  NameMap<Row> rows_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_
