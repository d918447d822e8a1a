// OpRegistry's definitions: the table of operators, its lookups, and the messages for mistakes.
#ifndef OPKIT_OP_IMPL_OP_REGISTRY_IPP_
#define OPKIT_OP_IMPL_OP_REGISTRY_IPP_

#include <algorithm>

#include "opkit/base/name_map.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/registration/source_place.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE bool HasOwnRegistries() {
  char* volatile marker = &opkit_image_is_library;
  return marker;
}
inline void CheckModes() {
  if (ImageMixesModes()) Throw(ErrorCode::kFailedPrecondition, kMixedModes);
}
inline std::string SchemaPlace(const OpSchema& schema) {
  return StrCat(schema.file(), ":", schema.line());
}

// The users of the registry and the removal that waits for them. A waiting removal does not block
// new users. A user may start threads that also use the registry and wait for these threads; if
// they waited for the removal, nothing would go on.
struct RegistryUsers {
  Mutex mutex;  // held by a removal for as long as it lasts
  int64_t count = 0;
  Parker* removal = nullptr;  // wakes the waiting removal after the last user
};
OPKIT_IMAGE_LOCAL inline constinit RegistryUsers g_registry_users;
OPKIT_IMAGE_LOCAL inline constinit thread_local int t_registry_uses = 0;

OPKIT_INLINE RegistryUse::RegistryUse() {
  if (t_registry_uses++ > 0) return;
  MutexLock lock(g_registry_users.mutex);
  ++g_registry_users.count;
}
OPKIT_INLINE RegistryUse::~RegistryUse() {
  if (--t_registry_uses > 0) return;
  Parker::Address sleeper = nullptr;
  {
    MutexLock lock(g_registry_users.mutex);
    if (--g_registry_users.count == 0 && g_registry_users.removal)
      sleeper = std::exchange(g_registry_users.removal, nullptr)->Set();
  }
  if (sleeper) Parker::Wake(sleeper);
}
// A copy of all preferences, which KeepPreferences makes.
struct KeptPreferences : RefCounted {
  BackendPreference first;
  NameMap<BackendPreference> by_key;
};
OPKIT_IMAGE_LOCAL inline constinit thread_local const RefCounted* t_preferences = nullptr;
inline const KeptPreferences* PreferencesOfThread() {
  return static_cast<const KeptPreferences*>(t_preferences);
}

OPKIT_INLINE PreferenceScope::PreferenceScope(const RefCounted& preferences)
    : preferences_(t_preferences, &preferences) {}

OPKIT_INLINE bool RegistryUse::IsInThisThread() { return t_registry_uses > 0; }

OPKIT_INLINE RegistryRemoval::RegistryRemoval() {
  ++t_registry_uses;  // so that calls inside the removal do not wait for it
  for (;;) {
    Parker parker;
    g_registry_users.mutex.Lock();
    if (g_registry_users.count == 0) return;
    g_registry_users.removal = &parker;
    g_registry_users.mutex.Unlock();
    parker.Wait();
  }
}
OPKIT_INLINE RegistryRemoval::~RegistryRemoval() {
  --t_registry_uses;
  g_registry_users.mutex.Unlock();
}

}  // namespace detail

// All data of the registry, behind one lock.
struct OpRegistry::State {
  // A backend that a library puts first for an operator.
  struct Override {
    std::string backend, origin;
  };
  using KernelRow = detail::Shared<Kernel>;  // keeps its address while the list grows
  static Kernel& KernelOf(const detail::IntrusivePtr<detail::RefCounted>& row) {
    return static_cast<KernelRow&>(*row).value;
  }
  // All registrations of one operator.
  struct Entry {
    OpSchema* schema = nullptr;
    detail::IntrusivePtr<detail::RefCounted> schema_owner;
    detail::RefCountedList kernels;     // KernelRow objects
    std::vector<std::string> problems;  // thrown at lookup; Problems lists them
    std::vector<std::string> listed;
    std::vector<Override> overrides;  // the last override comes first in the order

    bool Exists() const { return schema || !kernels.empty() || !problems.empty(); }
    bool HasKernel(DeviceType device) const {
      for (const auto& row : kernels)
        if (KernelOf(row).device == device) return true;
      return false;
    }
    void Add(std::string problem) {  // once, even if several translation units contain it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  const Entry& Get(std::string_view op) const {
    const Entry* entry = ops.Find(op);
    if (entry && entry->Exists()) return *entry;
    if (const std::string* library = removed.Find(op))
      Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered: it was library ", *library,
            "'s, which is loaded no more");
    const std::vector<std::string> names = Names();
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, names),
          ops.empty() ? "; nothing is: no file with operators is linked, or, before main, none has "
                        "registered its operators yet"
                      : "",
          NearestName(op, names).empty()
              ? "; a standard operator comes with opkit::ops or its header in opkit/ops, one "
                "of opkit.cluster with opkit::cluster or opkit/cluster/operators.hpp, one in a "
                "static archive is kept by opkit_link_operators (CMake) or "
                "OPKIT_USE_REGISTRATIONS, one of a shared library comes with Library::Load"
              : "",
          detail::HasOwnRegistries()
              ? "; in a library Invoke and CreateOperator know the library's own operators, "
                "OpResource::invoke in a REGISTER_OP those of the program"
              : "");
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& row : ops)
      if (row.value.Exists()) names.push_back(row.name);
    return names;
  }
  static std::string WithoutSchema(std::string_view op, const Entry& entry) {
    return StrCat(
        "operator ", op, " has a kernel",
        entry.kernels.empty() ? "" : " (at " + KernelOf(entry.kernels.front()).Place() + ")",
        " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }

  mutable detail::Mutex mutex;
  NameMap<Entry> ops;
  NameMap<std::string> removed;   // last origin of each removed operator, by name
  NameMap<std::string> expected;  // ExpectOperator's texts, by operator
  // Second schemas and replaced kernels, to which callers may have pointers.
  detail::RefCountedList kept;
  // Returns the key of an operator (empty for all operators) and a device.
  static std::string PreferenceKey(std::string_view op, DeviceType device) {
    return StrCat(op, '\n', static_cast<int>(device));
  }
  NameMap<detail::BackendPreference> preferences;
  bool has_overrides = false;
  // The rank of a backend, as the program or a library (`origin`) has set it.
  struct Rank {
    int value = kUnranked;
    std::string origin;
  };
  // The function that returns why a backend is unavailable, and its result once called.
  struct Availability {
    // Shared, so that it keeps its address during a call.
    detail::IntrusivePtr<detail::Shared<UniqueFunction<std::string()>>> why_not;
    bool is_known = false;
    std::string found;
    std::string origin;
  };
  // For each backend, an entry of the program and of each library that has set it.
  NameMap<std::vector<Rank>> ranks;
  NameMap<std::string (*)()> versions;  // by backend
  NameMap<std::vector<Availability>> availability;
  // Returns the entry of an origin; null if it has none.
  template <class List>
  static auto OfOrigin(List* list, std::string_view origin) -> decltype(list->data()) {
    if (list)
      for (auto& one : *list)
        if (one.origin == origin) return &one;
    return nullptr;
  }
  // Returns the entry of an origin; makes it if there is none.
  template <class T>
  static T& AddedOf(NameMap<std::vector<T>>& all, std::string_view backend,
                    const std::string& origin) {
    std::vector<T>& list = all[backend];
    if (T* known = OfOrigin(&list, origin)) return *known;
    list.emplace_back().origin = origin;
    return list.back();
  }
};

OPKIT_INLINE OpRegistry::OpRegistry() : state_(new State) {}
OPKIT_COLD OPKIT_INLINE OpRegistry::~OpRegistry() { delete state_; }
OPKIT_INLINE OpRegistry& OpRegistry::Global() {
  static auto* registry = detail::HasOwnRegistries() ? new OpRegistry : &OfProgram();
  return *registry;
}

OPKIT_COLD OPKIT_INLINE OpSchema& OpRegistry::AddSchema(const char* name, const char* file,
                                                        int line, std::string signature) {
  auto* added = new detail::Shared<OpSchema>(OpSchema(name, file, line, std::move(signature)));
  AddSchema(detail::IntrusivePtr<detail::RefCounted>(added), added->value);
  return added->value;
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::AddSchema(detail::IntrusivePtr<detail::RefCounted> owner,
                                                   OpSchema& schema) {
  detail::MutexLock lock(state_->mutex);
  State::Entry& entry = state_->ops[schema.name()];
  if (!entry.schema) {
    entry.schema_owner = std::move(owner);
    entry.schema = &schema;
    return;
  }
  const OpSchema& known = *entry.schema;
  const bool same_signature =
      !schema.signature().empty() && schema.signature() == known.signature();
  if (!same_signature &&
      !detail::SamePlace(known.file(), known.line(), schema.file(), schema.line()))
    entry.Add(StrCat("two schemas of operator ", schema.name(), ": at ", detail::SchemaPlace(known),
                     " and at ", detail::SchemaPlace(schema), "; remove one of them"));
  state_->kept.push_back(std::move(owner));
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::AddKernel(Kernel kernel) {
  detail::MutexLock lock(state_->mutex);
  State::Entry& entry = state_->ops[kernel.op];
  for (auto& row : entry.kernels) {
    const Kernel& known = State::KernelOf(row);
    if (known.device != kernel.device || known.backend != kernel.backend) continue;
    if (detail::SamePlace(known.file, known.line, kernel.file, kernel.line)) return;
    if (known.priority == kernel.priority)
      entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", kernel.device, ", backend ",
                       kernel.backend, ": at ", known.Place(), " and at ", kernel.Place(),
                       "; remove one, or register it with another priority or backend"));
    if (known.priority >= kernel.priority) return;
    state_->kept.push_back(row);
    row = detail::MakeIntrusive<State::KernelRow>(std::move(kernel));
    return;
  }
  entry.kernels.push_back(detail::MakeIntrusive<State::KernelRow>(std::move(kernel)));
}
OPKIT_INLINE void OpRegistry::AddProblem(const std::string& op, std::string text) {
  detail::MutexLock lock(state_->mutex);
  state_->ops[op].listed.push_back(std::move(text));
}

OPKIT_INLINE void OpRegistry::ExpectOperator(const std::string& op, std::string what) {
  detail::MutexLock lock(state_->mutex);
  state_->expected[op] = std::move(what);
}
OPKIT_INLINE void OpRegistry::ForgetExpected(const std::string& op) {
  detail::MutexLock lock(state_->mutex);
  state_->expected.Erase(op);
}

OPKIT_INLINE const OpSchema* OpRegistry::FindSchema(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  const State::Entry* entry = state_->ops.Find(op);
  return entry ? entry->schema : nullptr;
}
OPKIT_INLINE const OpSchema& OpRegistry::GetSchema(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  const State::Entry& entry = state_->Get(op);
  if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
  if (!entry.schema) Throw(ErrorCode::kNotFound, State::WithoutSchema(op, entry));
  return *entry.schema;
}
OPKIT_INLINE std::vector<const Kernel*> OpRegistry::KernelsOf(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  std::vector<const Kernel*> out;
  if (const State::Entry* entry = state_->ops.Find(op))
    for (const auto& row : entry->kernels) out.push_back(&State::KernelOf(row));
  return out;
}
OPKIT_INLINE std::vector<const Kernel*> OpRegistry::FindKernels(std::string_view op,
                                                                DeviceType device) const {
  std::vector<const Kernel*> out;
  for (const Kernel* kernel : KernelsOf(op))
    if (kernel->device == device) out.push_back(kernel);
  return out;
}
OPKIT_COLD OPKIT_INLINE std::vector<std::string> OpRegistry::Operators() const {
  detail::MutexLock lock(state_->mutex);
  return state_->Names();
}
OPKIT_COLD OPKIT_INLINE std::vector<std::string> OpRegistry::Problems() const {
  detail::MutexLock lock(state_->mutex);
  std::vector<std::string> out;
  if (detail::ImageMixesModes()) out.push_back(detail::kMixedModes);
  for (const auto& row : state_->ops) {
    const std::string& op = row.name;
    const State::Entry& entry = row.value;
    for (const std::string& problem : entry.problems) out.push_back(problem);
    for (const std::string& problem : entry.listed) out.push_back(problem);
    if (std::string why = entry.schema ? entry.schema->problem() : std::string(); !why.empty())
      out.push_back(std::move(why));
    if (!entry.schema && !entry.kernels.empty()) out.push_back(State::WithoutSchema(op, entry));
    if (entry.schema && entry.kernels.empty())
      out.push_back(StrCat("operator ", op, " has a schema (at ",
                           detail::SchemaPlace(*entry.schema),
                           ") but no kernel; add REGISTER_CPU_OPERATOR(", op,
                           ", …), or link the file that registers it"));
  }
  for (const auto& row : state_->expected) {
    const State::Entry* entry = state_->ops.Find(row.name);
    if (!entry || !entry->Exists())
      out.push_back(StrCat(row.value, ", and no operator '", row.name, "' is registered",
                           SuggestName(row.name, state_->Names())));
  }
  return out;
}
OPKIT_INLINE void OpRegistry::AddOverride(const std::string& op, const std::string& backend,
                                          const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  state_->ops[op].overrides.push_back({backend, origin});
  state_->has_overrides = true;
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::RemoveOrigin(const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  const auto forget = [&](auto& row) {
    std::erase_if(row.value, [&](const auto& one) { return one.origin == origin; });
    return row.value.empty();
  };
  state_->ranks.EraseIf(forget);
  state_->availability.EraseIf(forget);
  state_->ops.EraseIf([&](auto& row) {
    State::Entry& entry = row.value;
    std::erase_if(entry.kernels,
                  [&](const auto& kernel) { return State::KernelOf(kernel).origin == origin; });
    std::erase_if(entry.overrides, [&](const auto& known) { return known.origin == origin; });
    if (entry.schema && entry.schema->origin() == origin) {
      entry.schema = nullptr;
      entry.schema_owner = {};
    }
    if (entry.Exists()) return false;
    state_->removed[row.name] = origin;
    return true;
  });
}
OPKIT_INLINE void OpRegistry::Remove(std::string_view op) {
  detail::MutexLock lock(state_->mutex);
  state_->ops.Erase(op);
}

OPKIT_COLD OPKIT_INLINE std::string OpRegistry::WhyNoBackend(std::string_view backend) const {
  detail::MutexLock lock(state_->mutex);
  NameMap<char> known;
  for (const auto& row : state_->ops)
    for (const auto& kernel : row.value.kernels) {
      const std::string& name = State::KernelOf(kernel).backend;
      if (name == backend) return {};
      known.RowOf(name);
    }
  return StrCat("no backend '", backend, "' has a kernel in this program",
                SuggestName(backend, known.Names()));
}
OPKIT_INLINE void OpRegistry::CheckBackend(std::string_view backend) const {
  if (std::string why = WhyNoBackend(backend); !why.empty()) Throw(ErrorCode::kNotFound, why);
}
OPKIT_INLINE void OpRegistry::SetBackendRank(std::string_view backend, int rank,
                                             const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  int& known = State::AddedOf(state_->ranks, backend, origin).value;
  known = (std::max)(known, rank);
}
OPKIT_INLINE int OpRegistry::BackendRank(std::string_view backend, std::string_view origin) const {
  if (backend == kReferenceBackend) return 0;
  detail::MutexLock lock(state_->mutex);
  int rank = kUnranked;
  if (const auto* known = state_->ranks.Find(backend))
    for (const State::Rank& one : *known)
      if (one.origin.empty() || one.origin == origin) rank = (std::max)(rank, one.value);
  return rank;
}

OPKIT_COLD OPKIT_INLINE void OpRegistry::SetBackendVersion(std::string_view backend,
                                                           std::string (*version)()) {
  detail::MutexLock lock(state_->mutex);
  state_->versions[backend] = version;
}
OPKIT_COLD OPKIT_INLINE std::string OpRegistry::BackendVersion(std::string_view backend) const {
  std::string (*version)() = nullptr;
  {
    detail::MutexLock lock(state_->mutex);
    if (auto* const known = state_->versions.Find(backend)) version = *known;
  }
  return version ? version() : std::string();
}

OPKIT_INLINE void OpRegistry::SetBackendAvailability(std::string_view backend,
                                                     UniqueFunction<std::string()> why_not,
                                                     const std::string& origin) {
  using Function = detail::Shared<UniqueFunction<std::string()>>;
  detail::MutexLock lock(state_->mutex);
  State::AddedOf(state_->availability, backend, origin) = {
      detail::MakeIntrusive<Function>(std::move(why_not)), false, {}, origin};
}
OPKIT_COLD OPKIT_INLINE std::string OpRegistry::WhyUnavailable(const Kernel& kernel) const {
  const auto find = [&] {
    return State::OfOrigin(state_->availability.Find(kernel.backend), kernel.origin);
  };
  detail::IntrusivePtr<detail::Shared<UniqueFunction<std::string()>>> why_not;
  {
    detail::MutexLock lock(state_->mutex);
    const State::Availability* known = find();
    if (!known) return {};
    if (known->is_known) return known->found;
    why_not = known->why_not;
  }
  std::string why = why_not->value();  // outside the lock: it may be slow, and may use the registry
  detail::MutexLock lock(state_->mutex);
  if (State::Availability* known = find(); known && known->why_not.get() == why_not.get()) {
    known->is_known = true;
    known->found = why;
  }
  return why;
}
OPKIT_COLD OPKIT_INLINE bool OpRegistry::HasAvailability(std::string_view backend) const {
  detail::MutexLock lock(state_->mutex);
  return static_cast<bool>(State::OfOrigin(state_->availability.Find(backend), {}));
}
OPKIT_COLD OPKIT_INLINE std::vector<OpRegistry::Backend> OpRegistry::Backends() const {
  struct Row {
    int kernels = 0;
    detail::RefCountedList rows;  // one kernel of each origin
  };
  NameMap<Row> backends;
  {
    detail::MutexLock lock(state_->mutex);
    for (const auto& row : state_->ops)
      for (const auto& kernel : row.value.kernels) {
        const Kernel& one = State::KernelOf(kernel);
        Row& backend = backends[one.backend];
        ++backend.kernels;
        bool is_new = true;
        for (const auto& known : backend.rows)
          is_new &= State::KernelOf(known).origin != one.origin;
        if (is_new) backend.rows.push_back(kernel);
      }
  }
  std::vector<Backend> found;
  for (const auto& row : backends) {
    Backend& info = found.emplace_back();
    info.name = row.name;
    info.rank = BackendRank(row.name);
    for (const auto& kernel : row.value.rows)
      info.rank = (std::max)(info.rank, BackendRank(row.name, State::KernelOf(kernel).origin));
    info.kernels = row.value.kernels;
    for (const auto& kernel : row.value.rows) {  // all kernels of an origin are available, or none
      info.why_unavailable = WhyUnavailable(State::KernelOf(kernel));
      if (info.why_unavailable.empty()) break;
    }
  }
  return found;
}

OPKIT_INLINE void OpRegistry::SetPreference(DeviceType device, detail::BackendPreference backends) {
  CheckPreference(device, backends);
  detail::MutexLock lock(state_->mutex);
  state_->preferences[State::PreferenceKey("", device)] = std::move(backends);
}
OPKIT_INLINE void OpRegistry::SetPreference(const std::string& op, DeviceType device,
                                            detail::BackendPreference backends) {
  CheckPreference(op, device);
  detail::MutexLock lock(state_->mutex);
  state_->preferences[State::PreferenceKey(op, device)] = std::move(backends);
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::CheckPreference(
    DeviceType device, const detail::BackendPreference& backends) const {
  detail::MutexLock lock(state_->mutex);
  bool known = backends.empty();
  for (const auto& row : state_->ops) known |= row.value.HasKernel(device);
  if (!known)
    Throw(ErrorCode::kNotFound, "a backend preference is set for ", ToString(device),
          ", for which no operator of this program has a kernel");
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::CheckPreference(const std::string& op,
                                                         DeviceType device) const {
  detail::MutexLock lock(state_->mutex);
  if (!state_->Get(op).HasKernel(device))
    Throw(ErrorCode::kNotFound, "a backend preference is set for operator ", op, " on ",
          ToString(device), ", where it has no kernel");
}
OPKIT_COLD OPKIT_INLINE detail::BackendPreference OpRegistry::PreferenceOf(
    std::string_view op, DeviceType device) const {
  detail::MutexLock lock(state_->mutex);
  detail::BackendPreference out;
  // Preferences are nearly always empty, but every creation of an operator reads them.
  const detail::KeptPreferences* const kept = detail::PreferencesOfThread();
  if (kept) out = kept->first;
  const NameMap<detail::BackendPreference>& by_key = kept ? kept->by_key : state_->preferences;
  if (by_key.empty() && !state_->has_overrides) return out;
  for (const std::string_view key : {op, std::string_view()})
    if (const detail::BackendPreference* known = by_key.Find(State::PreferenceKey(key, device)))
      for (const std::string& backend : *known) out.push_back(backend);
  if (const State::Entry* entry = state_->ops.Find(op))
    for (size_t i = entry->overrides.size(); i > 0; --i)
      out.push_back(entry->overrides[i - 1].backend);
  return out;
}
OPKIT_COLD OPKIT_INLINE detail::IntrusivePtr<detail::RefCounted> OpRegistry::KeepPreferences(
    const detail::BackendPreference& first) const {
  auto now = detail::MakeIntrusive<detail::KeptPreferences>();
  now->first = first;
  const auto add = [&](const NameMap<detail::BackendPreference>& by_key) {
    for (const auto& row : by_key) now->by_key[row.name] = row.value;
  };
  if (const detail::KeptPreferences* kept = detail::PreferencesOfThread()) {
    now->first.insert(now->first.end(), kept->first.begin(), kept->first.end());
    add(kept->by_key);
  } else {
    detail::MutexLock lock(state_->mutex);
    add(state_->preferences);
  }
  return now;
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OP_REGISTRY_IPP_
