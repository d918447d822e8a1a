// Registry: creators of objects by name, for a program's own factories (Caffe2's
// C10_DEFINE_REGISTRY): readers of file formats, schedulers, and other classes that are chosen by
// name and defined in many files. Operators have OpRegistry, which knows devices and backends.
#ifndef OPKIT_BASE_REGISTRY_HPP_
#define OPKIT_BASE_REGISTRY_HPP_

#include <memory>

#include "opkit/base/error.hpp"
#include "opkit/base/name_map.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/registration/source_place.hpp"
#include "opkit/base/suggest.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   struct Reader { virtual ~Reader() = default; … };
//   OPKIT_DEFINE_REGISTRY(Readers, Reader, const std::string& path)   // at namespace scope
//
//   OPKIT_REGISTER_CLASS(Readers, "csv", CsvReader);     // constructed from a std::string
//   OPKIT_REGISTER_CREATOR(Readers, "gz", &MakeUnzipping);
//
//   std::unique_ptr<Reader> reader = Readers().Create("csv", "table.csv");
//
// Registration is safe in static initialisers and in headers: it never throws, and the same line in
// two units is one registration. Thread-safe.
template <class Base, class... Args>
class Registry {
 public:
  using Creator = std::unique_ptr<Base> (*)(Args...);

  explicit Registry(const char* name) : name_(name) {}

  // Creates the object. Errors: kNotFound with the nearest name; kAlreadyExists, with both places,
  // for a name that is registered at two.
  template <class... Given>
  std::unique_ptr<Base> Create(std::string_view name, Given&&... args) const {
    return Find(name)(std::forward<Given>(args)...);
  }
  bool Has(std::string_view name) const {
    detail::MutexLock lock(mutex_);
    return rows_.Has(name);
  }
  // Returns the names in alphabetical order.
  std::vector<std::string> Names() const {
    detail::MutexLock lock(mutex_);
    return rows_.Names();
  }

  // Creates an object of `Class`; its address is a Creator.
  template <class Class>
  static std::unique_ptr<Base> New(Args... args) {
    return std::make_unique<Class>(std::forward<Args>(args)...);
  }

  // Returns true, for static initialisers; false if memory runs out.
  bool Register(const char* name, Creator creator, const char* file, int line) noexcept try {
    detail::MutexLock lock(mutex_);
    Row& first = rows_[name];
    if (!first.creator)
      first = {creator, file, line, {}};
    else if (!detail::SamePlace(first.file, first.line, file, line))
      first.problem = StrCat("'", name, "' is registered in ", name_, " at ", first.file, ":",
                             first.line, " and at ", file, ":", line, "; remove one of them");
    return true;
  } catch (...) {
    return false;
  }

 private:
  struct Row {
    Creator creator = nullptr;
    const char* file = nullptr;
    int line = 0;
    std::string problem;
  };

  Creator Find(std::string_view name) const {
    {
      detail::MutexLock lock(mutex_);
      if (const Row* row = rows_.Find(name)) {
        if (!row->problem.empty()) Throw(ErrorCode::kAlreadyExists, row->problem);
        return row->creator;
      }
    }
    Throw(ErrorCode::kNotFound, name_, " has no '", name, "'", SuggestName(name, Names()));
  }

  const char* const name_;
  mutable detail::Mutex mutex_;
  NameMap<Row> rows_;
};

}}  // namespace opkit

// Defines `name()`, the registry of creators (args…) -> std::unique_ptr<base> of this program
// image.
#define OPKIT_DEFINE_REGISTRY(name, base, ...)                                       \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_DEFINE_REGISTRY);                                   \
  inline ::opkit::Registry<base __VA_OPT__(, ) __VA_ARGS__>& name() {                \
    static ::opkit::Registry<base __VA_OPT__(, ) __VA_ARGS__> opkit_registry(#name); \
    return opkit_registry;                                                           \
  }
#define OPKIT_REGISTER_CREATOR(registry, name, ...)                 \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_CREATOR);                 \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_creator_) = \
      registry().Register(name, __VA_ARGS__, __FILE__, __LINE__)
// Registers a class that is constructed from the registry's arguments.
#define OPKIT_REGISTER_CLASS(registry, name, ...) \
  OPKIT_REGISTER_CREATOR(                         \
      registry, name, (&std::remove_reference_t<decltype(registry())>::template New<__VA_ARGS__>))

#endif  // OPKIT_BASE_REGISTRY_HPP_
