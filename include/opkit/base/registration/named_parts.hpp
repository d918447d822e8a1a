// NamedParts: a table of the partitioners, passes and similar parts that a program and its
// libraries register by name and remove again. Registration never throws, so that static
// initialisers can call it.
#ifndef OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_
#define OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_

#include "opkit/base/error.hpp"
#include "opkit/base/name_map.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/base/registration/source_place.hpp"
#include "opkit/base/suggest.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A thread-safe table. Part is RefCounted and has `const std::string& name() const`.
template <class Part>
class NamedParts {
 public:
  // `what` names the kind of part in messages, `how` the macro that registers one.
  NamedParts(const char* what, const char* how) : what_(what), how_(how) {}

  // Adds the part; returns false if the name is registered already or memory runs out. A second
  // registration from the same place of the source has no effect, since a header may register.
  // Registrations from two places are a conflict, which Get reports.
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
  // Removes the part; returns false if it is not registered.
  bool Unregister(const Part& part) noexcept {
    MutexLock lock(mutex_);
    return rows_.EraseIf([&](const auto& row) { return row.value.part.get() == &part; });
  }
  // Returns the part. Errors: kNotFound with the nearest name; kAlreadyExists for a name that is
  // registered at two places.
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
  // Returns the names in alphabetical order.
  std::vector<std::string> Names() const {
    MutexLock lock(mutex_);
    return rows_.Names();
  }
  // Returns the names that begin with `name` and a dot, in the order of their lines of the source.
  std::vector<std::string> Group(std::string_view name) const {
    MutexLock lock(mutex_);
    std::vector<std::string> names;
    std::vector<int> lines;
    for (const auto& row : rows_) {
      if (row.name.size() <= name.size() || row.name[name.size()] != '.' ||
          !row.name.starts_with(name))
        continue;
      size_t at = lines.size();  // behind equal lines, which keep the order of their names
      while (at > 0 && lines[at - 1] > row.value.line) --at;
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), row.value.line);
      names.insert(names.begin() + static_cast<std::ptrdiff_t>(at), row.name);
    }
    return names;
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

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REGISTRATION_NAMED_PARTS_HPP_
