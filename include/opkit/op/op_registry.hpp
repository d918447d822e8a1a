// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// engine preferences. Registration never throws or exits; what is wrong is kept and reported at the
// first lookup, or all at once by CheckRegistrations.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

#include <map>
#include <mutex>

#include "opkit/op/kernel.hpp"
#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {

using EnginePref = std::vector<std::string>;  // backends to try, in order
using GlobalEnginePref = std::map<DeviceType, EnginePref>;
using PerOpEnginePref = std::map<DeviceType, std::map<std::string, EnginePref>>;

// Thread-safe. What it returns stays valid until the library it came from is unloaded.
class OpRegistry {
 public:
  static OpRegistry& Global() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }

  // A schema to fill in. The same name from the same place (a header seen by two translation units)
  // is the same schema: the second filling goes nowhere.
  // So are two that were derived from the same typed signature.
  OpSchema& AddSchema(const char* name, const char* file, int line, std::string signature = {}) {
    std::lock_guard lock(mutex_);
    Entry& entry = ops_[name];
    auto schema = std::make_unique<OpSchema>(name, file, line, std::move(signature));
    if (!entry.schema) return *(entry.schema = std::move(schema));
    const bool same_signature =
        !schema->signature().empty() && schema->signature() == entry.schema->signature();
    if (!same_signature && !SamePlace(entry.schema->file(), entry.schema->line(), file, line))
      entry.Add(StrCat("two schemas of operator ", name, ": at ", entry.schema->file(), ":",
                       entry.schema->line(), " and at ", file, ":", line, "; remove one of them"));
    return *shadows_.emplace_back(std::move(schema));
  }

  // The same kernel from the same place is the same kernel.
  void AddKernel(Kernel kernel) {
    std::lock_guard lock(mutex_);
    Entry& entry = ops_[kernel.op];
    backends_.try_emplace(kernel.backend);
    for (auto& known : entry.kernels) {
      if (known->device != kernel.device || known->backend != kernel.backend) continue;
      if (SamePlace(known->file, known->line, kernel.file, kernel.line)) return;
      if (known->priority < kernel.priority) {
        replaced_.push_back(std::exchange(known, std::make_unique<Kernel>(std::move(kernel))));
      } else if (known->priority == kernel.priority) {
        entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", ToString(kernel.device),
                         ", backend ", kernel.backend, ": at ", known->Place(), " and at ",
                         kernel.Place(),
                         "; remove one, or register it with another priority or backend"));
      }
      return;
    }
    entry.kernels.push_back(std::make_unique<Kernel>(std::move(kernel)));
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
    std::lock_guard lock(mutex_);
    other_problems_.emplace_back(op, std::move(text));
  }

  // Null when there is none.
  const OpSchema* FindSchema(const std::string& op) const {
    std::lock_guard lock(mutex_);
    const auto it = ops_.find(op);
    return it == ops_.end() ? nullptr : it->second.schema.get();
  }
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for one that
  // was registered twice.
  const OpSchema& GetSchema(const std::string& op) const {
    std::lock_guard lock(mutex_);
    const auto it = ops_.find(op);
    if (it == ops_.end()) ThrowUnknown(op);
    const Entry& entry = it->second;
    if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
    if (!entry.schema) Throw(ErrorCode::kNotFound, WithoutSchema(op, entry));
    return *entry.schema;
  }
  // Kernels of an operator for a device type, in the order of registration.
  std::vector<const Kernel*> FindKernels(const std::string& op, DeviceType device) const {
    std::lock_guard lock(mutex_);
    std::vector<const Kernel*> out;
    if (const auto it = ops_.find(op); it != ops_.end())
      for (const auto& kernel : it->second.kernels)
        if (kernel->device == device) out.push_back(kernel.get());
    return out;
  }
  std::vector<const Kernel*> KernelsOf(const std::string& op) const {
    std::lock_guard lock(mutex_);
    std::vector<const Kernel*> out;
    if (const auto it = ops_.find(op); it != ops_.end())
      for (const auto& kernel : it->second.kernels) out.push_back(kernel.get());
    return out;
  }
  // Sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const {
    std::lock_guard lock(mutex_);
    return Names();
  }
  // Everything wrong with the registrations of this program; empty when nothing is.
  std::vector<std::string> Problems() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [op, entry] : ops_) {
      out.insert(out.end(), entry.problems.begin(), entry.problems.end());
      if (!entry.schema) out.push_back(WithoutSchema(op, entry));
    }
    for (const auto& [op, text] : other_problems_) out.push_back(text);
    return out;
  }
  // For tests and libraries: forgets an operator whole.
  void Remove(const std::string& op) {
    std::lock_guard lock(mutex_);
    ops_.erase(op);
    std::erase_if(other_problems_, [&](const auto& problem) { return problem.first == op; });
  }

  // Error (kNotFound), naming the nearest, for a backend that no kernel of the program has.
  void CheckBackend(const std::string& backend) const {
    std::lock_guard lock(mutex_);
    if (backends_.count(backend)) return;
    std::vector<std::string> names;
    for (const auto& [name, unused] : backends_) names.push_back(name);
    Throw(ErrorCode::kNotFound, "no backend '", backend, "' has a kernel in this program",
          SuggestName(backend, names));
  }

  // Backends tried for every operator of a device, and for one operator; those that have no kernel
  // are passed over. Errors: kNotFound for an operator nobody registered, a device without kernels.
  void SetGlobalEnginePref(GlobalEnginePref pref) {
    std::lock_guard lock(mutex_);
    for (const auto& [device, engines] : pref) CheckPref(device);
    global_pref_ = std::move(pref);
  }
  void SetPerOpEnginePref(PerOpEnginePref pref) {
    std::lock_guard lock(mutex_);
    for (const auto& [device, ops] : pref)
      for (const auto& [op, engines] : ops) CheckPref(op, device);
    per_op_pref_ = std::move(pref);
  }
  void SetOpEnginePref(const std::string& op, const GlobalEnginePref& pref) {
    std::lock_guard lock(mutex_);
    for (const auto& [device, engines] : pref) CheckPref(op, device);
    for (const auto& [device, engines] : pref) per_op_pref_[device][op] = engines;
  }
  // Preferred backends of an operator, its own first.
  EnginePref EnginePrefs(const std::string& op, DeviceType device) const {
    std::lock_guard lock(mutex_);
    EnginePref out;
    if (const auto ops = per_op_pref_.find(device); ops != per_op_pref_.end())
      if (const auto own = ops->second.find(op); own != ops->second.end()) out = own->second;
    if (const auto global = global_pref_.find(device); global != global_pref_.end())
      out.insert(out.end(), global->second.begin(), global->second.end());
    return out;
  }

 private:
  struct Entry {
    std::unique_ptr<OpSchema> schema;
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<std::string> problems;

    void Add(std::string problem) {  // once, however many translation units see it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [op, entry] : ops_) names.push_back(op);
    return names;
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(const std::string& op) const {
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, Names()),
          ops_.empty() ? "; nothing is: was the file that registers it linked?" : "");
  }
  static std::string WithoutSchema(const std::string& op, const Entry& entry) {
    return StrCat("operator ", op, " has a kernel",
                  entry.kernels.empty() ? "" : " (at " + entry.kernels[0]->Place() + ")",
                  " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }
  void CheckPref(DeviceType device) const {
    for (const auto& [op, entry] : ops_)
      for (const auto& kernel : entry.kernels)
        if (kernel->device == device) return;
    Throw(ErrorCode::kNotFound, "engine preference for ", ToString(device),
          ", for which no operator of this program has a kernel");
  }
  void CheckPref(const std::string& op, DeviceType device) const {
    const auto it = ops_.find(op);
    if (it == ops_.end()) ThrowUnknown(op);
    for (const auto& kernel : it->second.kernels)
      if (kernel->device == device) return;
    Throw(ErrorCode::kNotFound, "engine preference for operator ", op, " on ", ToString(device),
          ", where it has no kernel");
  }

  mutable std::mutex mutex_;
  std::map<std::string, Entry> ops_;
  std::map<std::string, bool> backends_;  // names that some kernel was registered with
  std::vector<std::unique_ptr<OpSchema>> shadows_;
  std::vector<std::unique_ptr<Kernel>> replaced_;
  std::vector<std::pair<std::string, std::string>> other_problems_;  // operator, text
  GlobalEnginePref global_pref_;
  PerOpEnginePref per_op_pref_;
};

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema), one sentence each; empty when nothing is. A good first line of a test.
inline std::vector<std::string> CheckRegistrations() { return OpRegistry::Global().Problems(); }
inline std::vector<std::string> RegisteredOperators() { return OpRegistry::Global().Operators(); }
inline void SetGlobalEnginePref(GlobalEnginePref pref) {
  OpRegistry::Global().SetGlobalEnginePref(std::move(pref));
}
inline void SetPerOpEnginePref(PerOpEnginePref pref) {
  OpRegistry::Global().SetPerOpEnginePref(std::move(pref));
}
inline void SetOpEnginePref(const std::string& op, const GlobalEnginePref& pref) {
  OpRegistry::Global().SetOpEnginePref(op, pref);
}

}  // namespace opkit

#endif  // OPKIT_OP_OP_REGISTRY_HPP_
