// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// engine preferences. Registration never throws or exits; what is wrong is kept and reported at the
// first lookup, or all at once by CheckRegistrations.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

#include "opkit/base/name_table.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/schema.hpp"

// Defined in an image (a program or shared object) of which a unit includes plugin/author.hpp.
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A library that is loaded at run time has registries of its own, whatever symbols the program
// exports; shared objects that a program is linked with share the program's.
OPKIT_IMAGE_LOCAL inline bool HasOwnRegistries() {
  char* volatile marker = &opkit_image_is_library;
  return marker != nullptr;
}

}  // namespace detail

using EnginePref = std::vector<std::string>;  // backends to try, in order

// Thread-safe. What it returns stays valid until the library it came from is unloaded.
class OpRegistry {
 public:
  OPKIT_IMAGE_LOCAL static OpRegistry& Global() {
    static auto* registry = detail::HasOwnRegistries() ? new OpRegistry : &OfProgram();
    return *registry;
  }
  OPKIT_EXPORT static OpRegistry& OfProgram() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }

  // A schema to fill in. The same name from the same place (a header seen by two translation units)
  // is the same schema: the second filling goes nowhere.
  // So are two that were derived from the same typed signature.
  OPKIT_COLD OpSchema& AddSchema(const char* name, const char* file, int line,
                                 std::string signature = {}) {
    auto* added = new detail::Shared<OpSchema>(OpSchema(name, file, line, std::move(signature)));
    AddSchema(detail::IntrusivePtr<detail::RefCounted>(added), added->value);
    return added->value;
  }
  // One that is filled in already, and kept by `owner`.
  OPKIT_COLD void AddSchema(detail::IntrusivePtr<detail::RefCounted> owner, OpSchema& schema) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(schema.name());
    if (!entry.schema) {
      entry.schema_owner = std::move(owner);
      entry.schema = &schema;
      return;
    }
    const OpSchema& known = *entry.schema;
    const bool same_signature =
        !schema.signature().empty() && schema.signature() == known.signature();
    if (!same_signature && !SamePlace(known.file(), known.line(), schema.file(), schema.line()))
      entry.Add(StrCat("two schemas of operator ", schema.name(), ": at ", known.file(), ":",
                       known.line(), " and at ", schema.file(), ":", schema.line(),
                       "; remove one of them"));
    kept_.push_back(std::move(owner));
  }

  // The same kernel from the same place is the same kernel.
  OPKIT_COLD void AddKernel(Kernel kernel) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(kernel.op);
    size_t at = 0;
    for (; at < entry.kernels.size(); ++at) {
      const Kernel& known = entry.kernel(at);
      if (known.device != kernel.device || known.backend != kernel.backend) continue;
      if (SamePlace(known.file, known.line, kernel.file, kernel.line)) return;
      if (known.priority == kernel.priority)
        entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", ToString(kernel.device),
                         ", backend ", kernel.backend, ": at ", known.Place(), " and at ",
                         kernel.Place(),
                         "; remove one, or register it with another priority or backend"));
      if (known.priority >= kernel.priority) return;
      kept_.push_back(entry.kernels[at]);
      break;
    }
    if (at == entry.kernels.size()) entry.kernels.emplace_back();
    entry.kernels[at] =
        detail::IntrusivePtr<detail::RefCounted>(new detail::Shared<Kernel>(std::move(kernel)));
  }

  // Two registrations are one when a header has made them in two translation units.
  static bool SamePlace(std::string_view file_a, int line_a, std::string_view file_b, int line_b) {
    auto strip = [](std::string_view path) {
      while (path.substr(0, 2) == "./") path.remove_prefix(2);
      return path;
    };
    return line_a == line_b && strip(file_a) == strip(file_b);
  }

  // Something else that is wrong with an operator's registrations (a second gradient): listed by
  // Problems, and reported by whoever looks that up.
  void AddProblem(const std::string& op, std::string text) {
    detail::MutexLock lock(mutex_);
    ops_.FindOrAdd(op).listed.push_back(std::move(text));
  }

  // Null when there is none.
  const OpSchema* FindSchema(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    const Entry* entry = ops_.Find(op);
    return entry ? entry->schema : nullptr;
  }
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for one that
  // was registered twice.
  OPKIT_COLD const OpSchema& GetSchema(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    const Entry& entry = Get(op);
    if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
    if (!entry.schema) Throw(ErrorCode::kNotFound, WithoutSchema(op, entry));
    return *entry.schema;
  }
  // All kernels of an operator, or those for a device type, in the order of registration.
  OPKIT_COLD std::vector<const Kernel*> KernelsOf(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    std::vector<const Kernel*> out;
    if (const Entry* entry = ops_.Find(op))
      for (size_t i = 0; i < entry->kernels.size(); ++i) out.push_back(&entry->kernel(i));
    return out;
  }
  std::vector<const Kernel*> FindKernels(std::string_view op, DeviceType device) const {
    std::vector<const Kernel*> out;
    for (const Kernel* kernel : KernelsOf(op))
      if (kernel->device == device) out.push_back(kernel);
    return out;
  }
  // Sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const {
    detail::MutexLock lock(mutex_);
    return Names();
  }
  // Everything wrong with the registrations of this program; empty when nothing is.
  OPKIT_COLD std::vector<std::string> Problems() const {
    detail::MutexLock lock(mutex_);
    std::vector<std::string> out;
    for (const auto* row : ops_) {
      const Entry& entry = row->value;
      for (const std::string& problem : entry.problems) out.push_back(problem);
      for (const std::string& problem : entry.listed) out.push_back(problem);
      if (entry.schema && !entry.schema->problem().empty()) out.push_back(entry.schema->problem());
      if (!entry.schema && !entry.kernels.empty()) out.push_back(WithoutSchema(row->name, entry));
      if (entry.schema && entry.kernels.empty())
        out.push_back(StrCat("operator ", row->name, " has a schema (at ", entry.schema->file(),
                             ":", entry.schema->line(),
                             ") but no kernel; add REGISTER_CPU_OPERATOR(", row->name,
                             ", …), or link the file that registers it"));
    }
    return out;
  }
  // Makes a backend come first for an operator, behind what the node and the program ask for.
  void AddOverride(const std::string& op, const std::string& backend, const std::string& origin) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(op);
    entry.overrides.push_back({backend, origin});
    has_overrides_ = true;
  }
  // Forgets everything that came from a library.
  OPKIT_COLD void RemoveOrigin(const std::string& origin) {
    detail::MutexLock lock(mutex_);
    std::vector<std::string> gone;
    for (auto* row : ops_) {
      Entry& entry = row->value;
      detail::RefCountedList kernels;
      for (size_t i = 0; i < entry.kernels.size(); ++i)
        if (entry.kernel(i).origin != origin) kernels.push_back(entry.kernels[i]);
      entry.kernels = std::move(kernels);
      std::vector<Override> overrides;
      for (Override& known : entry.overrides)
        if (known.origin != origin) overrides.push_back(std::move(known));
      entry.overrides = std::move(overrides);
      if (entry.schema && entry.schema->origin() == origin) {
        entry.schema = nullptr;
        entry.schema_owner = {};
      }
      if (!entry.Exists()) gone.push_back(row->name);
    }
    for (const std::string& op : gone) ops_.Erase(op);
  }
  // For tests: forgets an operator whole.
  void Remove(std::string_view op) {
    detail::MutexLock lock(mutex_);
    ops_.Erase(op);
  }

  // Error (kNotFound), naming the nearest, for a backend that no kernel of the program has.
  OPKIT_COLD void CheckBackend(const std::string& backend) const {
    detail::MutexLock lock(mutex_);
    NameTable<Entry> backends;  // only for its names, sorted: another kind of table costs more
    for (const auto* row : ops_)
      for (size_t i = 0; i < row->value.kernels.size(); ++i) {
        const std::string& known = row->value.kernel(i).backend;
        if (known == backend) return;
        backends.FindOrAdd(known);
      }
    Throw(ErrorCode::kNotFound, "no backend '", backend, "' has a kernel in this program",
          SuggestName(backend, backends.Names()));
  }

  // How selection orders the backends that nobody asks for: higher first. "reference" has rank 0,
  // one that was never ranked comes last. Ranked twice, the higher counts.
  void SetBackendRank(std::string_view backend, int rank) {
    detail::MutexLock lock(mutex_);
    int* known = ranks_.Find(backend);
    if (!known) {
      ranks_.FindOrAdd(std::string(backend)) = rank;
    } else if (*known < rank) {
      *known = rank;
    }
  }
  int BackendRank(std::string_view backend) const {
    if (backend == kReferenceBackend) return 0;
    detail::MutexLock lock(mutex_);
    const int* rank = ranks_.Find(backend);
    return rank ? *rank : kUnranked;
  }
  static constexpr int kUnranked = -1;

  // Backends tried for every operator of a device, or for one operator before those; ones that have
  // no kernel are passed over, an empty list clears. Errors: kNotFound for an operator nobody
  // registered, or a device without kernels. The Check functions only say what the others would.
  void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
    CheckGlobalEnginePref(device, engines);
    detail::MutexLock lock(mutex_);
    SetPref({}, device, std::move(engines));
  }
  void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
    CheckOpEnginePref(op, device);
    detail::MutexLock lock(mutex_);
    SetPref(op, device, std::move(engines));
  }
  void CheckGlobalEnginePref(DeviceType device, const EnginePref& engines) const {
    detail::MutexLock lock(mutex_);
    bool known = engines.empty();
    for (const auto* row : ops_) known |= HasKernel(row->value, device);
    if (!known)
      Throw(ErrorCode::kNotFound, "engine preference for ", ToString(device),
            ", for which no operator of this program has a kernel");
  }
  void CheckOpEnginePref(const std::string& op, DeviceType device) const {
    detail::MutexLock lock(mutex_);
    if (!HasKernel(Get(op), device))
      Throw(ErrorCode::kNotFound, "engine preference for operator ", op, " on ", ToString(device),
            ", where it has no kernel");
  }
  // Preferred backends of an operator, its own first.
  OPKIT_COLD EnginePref EnginePrefs(std::string_view op, DeviceType device) const {
    detail::MutexLock lock(mutex_);
    EnginePref out;
    // As nearly always: creating an operator asks every time.
    if (prefs_.empty() && !has_overrides_) return out;
    for (const std::string& key : {PrefKey(op, device), PrefKey({}, device)})
      if (const EnginePref* pref = prefs_.Find(key))
        for (const std::string& engine : *pref) out.push_back(engine);
    if (const Entry* entry = ops_.Find(op))
      for (size_t i = entry->overrides.size(); i-- > 0;) out.push_back(entry->overrides[i].backend);
    return out;
  }

 private:
  struct Override {
    std::string backend, origin;
  };
  struct Entry {
    OpSchema* schema = nullptr;
    detail::IntrusivePtr<detail::RefCounted> schema_owner;
    detail::RefCountedList kernels;     // of detail::Shared<Kernel>
    std::vector<std::string> problems;  // thrown at lookup, and listed
    std::vector<std::string> listed;
    std::vector<Override> overrides;  // the last one comes first

    const Kernel& kernel(size_t i) const {
      return static_cast<detail::Shared<Kernel>&>(*kernels[i]).value;
    }
    bool Exists() const { return schema || !kernels.empty() || !problems.empty(); }
    void Add(std::string problem) {  // once, however many translation units see it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto* row : ops_)
      if (row->value.Exists()) names.push_back(row->name);
    return names;
  }
  const Entry& Get(std::string_view op) const {
    const Entry* entry = ops_.Find(op);
    if (!entry || !entry->Exists()) ThrowUnknown(op);
    return *entry;
  }
  static bool HasKernel(const Entry& entry, DeviceType device) {
    for (size_t i = 0; i < entry.kernels.size(); ++i)
      if (entry.kernel(i).device == device) return true;
    return false;
  }
  static std::string PrefKey(std::string_view op, DeviceType device) {
    return StrCat(op, " on ", static_cast<int>(device));
  }
  void SetPref(std::string_view op, DeviceType device, EnginePref engines) {
    prefs_.FindOrAdd(PrefKey(op, device)) = std::move(engines);
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view op) const {
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, Names()),
          ops_.empty() ? "; nothing is: was the file that registers it linked?" : "",
          detail::HasOwnRegistries()
              ? "; in a library Invoke and CreateOperator know the library's own operators, "
                "OpResource::invoke in a REGISTER_OP those of the program"
              : "");
  }
  OPKIT_COLD static std::string WithoutSchema(std::string_view op, const Entry& entry) {
    return StrCat("operator ", op, " has a kernel",
                  entry.kernels.empty() ? "" : " (at " + entry.kernel(0).Place() + ")",
                  " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }
  mutable detail::Mutex mutex_;
  NameTable<Entry> ops_;
  detail::RefCountedList kept_;  // second schemas and replaced kernels, which somebody may hold
  NameTable<EnginePref> prefs_;
  bool has_overrides_ = false;  // by operator (none: every one) and device
  NameTable<int> ranks_;        // by backend
};

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema, schemas without a kernel), one sentence each; empty when nothing is. A good
// first line of a test.
OPKIT_IMAGE_LOCAL inline std::vector<std::string> CheckRegistrations() {
  return OpRegistry::Global().Problems();
}
OPKIT_IMAGE_LOCAL inline std::vector<std::string> RegisteredOperators() {
  return OpRegistry::Global().Operators();
}
inline void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetGlobalEnginePref(device, std::move(engines));
}
inline void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetOpEnginePref(op, device, std::move(engines));
}
// Caffe2's forms: maps from device type to backends, and to operators and their backends. Nothing
// is changed when one entry is wrong.
template <class EnginesByDevice>
void SetGlobalEnginePref(const EnginesByDevice& pref) {
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().CheckGlobalEnginePref(device, engines);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetGlobalEnginePref(device, engines);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const auto& entry : pref) OpRegistry::Global().CheckOpEnginePref(op, entry.first);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetOpEnginePref(op, device, engines);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const auto& [device, ops] : pref)
    for (const auto& entry : ops) OpRegistry::Global().CheckOpEnginePref(entry.first, device);
  for (const auto& [device, ops] : pref)
    for (const auto& [op, engines] : ops) OpRegistry::Global().SetOpEnginePref(op, device, engines);
}

}  // namespace opkit

#endif  // OPKIT_OP_OP_REGISTRY_HPP_
