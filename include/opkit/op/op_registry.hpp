// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// preferences for backends. Registration never throws or exits; mistakes are kept and reported at
// the first lookup, or all at once by CheckRegistrations.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

#include "opkit/base/image_mode.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/schema.hpp"

// Defined in an image (a program or shared object) of which a unit includes plugin/author.hpp.
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A library that is loaded at run time has registries of its own, whatever symbols the program
// exports; shared objects that a program is linked with share the program's.
OPKIT_IMAGE_LOCAL bool HasOwnRegistries();

}  // namespace detail

using BackendPreference = std::vector<std::string>;  // backends to try, in order
using EnginePref = BackendPreference;                // Caffe2's spelling

// A provider of kernels, as the program and this machine have it.
struct BackendInfo {
  std::string name;
  int rank = 0;
  int kernels = 0;
  std::string why_unavailable;  // empty: its kernels can run here
};

// Thread-safe. The schemas and kernels that it returns stay valid until their library is unloaded.
class OpRegistry {
 public:
  OpRegistry();
  ~OpRegistry();

  // Inline, and a static inside: the dynamic linker makes it one in the program and the shared
  // objects that it is linked with.
  OPKIT_EXPORT static OpRegistry& OfProgram() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }
  OPKIT_IMAGE_LOCAL static OpRegistry& Global();

  // A schema to fill in. The same name from the same place (a header seen by two translation units)
  // is the same schema, and so are two that were derived from the same typed signature: the second
  // filling goes nowhere.
  OpSchema& AddSchema(const char* name, const char* file, int line, std::string signature = {});
  // Adds a schema that is filled in already, and kept by `owner`.
  void AddSchema(detail::IntrusivePtr<detail::RefCounted> owner, OpSchema& schema);
  // The same kernel from the same place is the same kernel.
  void AddKernel(Kernel kernel);

  // Keeps another mistake in an operator's registrations (a second gradient). Problems lists it;
  // the code that keeps the registration reports it at lookup.
  void AddProblem(const std::string& op, std::string text);
  // Something was registered for an operator by its name, a gradient say, whose own registration
  // may come later. Problems lists `what` where it never does. The second takes that back.
  void ExpectOperator(const std::string& op, std::string what);
  void ForgetExpected(const std::string& op);

  // Null when there is none.
  const OpSchema* FindSchema(std::string_view op) const;
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for an
  // operator that was registered twice; kFailedPrecondition where the program mixes header-only
  // with compiled units.
  const OpSchema& GetSchema(std::string_view op) const;
  // All kernels of an operator, or those for a device type, in the order of registration.
  std::vector<const Kernel*> KernelsOf(std::string_view op) const;
  std::vector<const Kernel*> FindKernels(std::string_view op, DeviceType device) const;
  // Sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const;
  // Everything wrong with the registrations of this program; empty when nothing is.
  std::vector<std::string> Problems() const;
  // Makes a backend come first for an operator, behind those that the node and the program ask for.
  void AddOverride(const std::string& op, const std::string& backend, const std::string& origin);
  // Forgets everything that came from a library.
  void RemoveOrigin(const std::string& origin);
  // For tests: forgets the operator's schema, kernels and problems.
  void Remove(std::string_view op);

  // Says, with the nearest name, that no kernel of the program has this backend; empty where one
  // has.
  std::string WhyNoBackend(std::string_view backend) const;
  // Throws that as an Error (kNotFound).
  void CheckBackend(std::string_view backend) const;
  // How selection orders the backends that no node or preference asks for: higher first.
  // "reference" has rank 0, a backend that was never ranked comes last. Of two ranks the higher
  // counts. What a library says, as `origin`, is true of its own kernels alone.
  void SetBackendRank(std::string_view backend, int rank, const std::string& origin = {});
  int BackendRank(std::string_view backend, std::string_view origin = {}) const;
  static constexpr int kUnranked = -1;
  // How to find out why a backend cannot run on this machine; empty: it can. Asked once, at the
  // first node that one of its kernels might run. Those of an absent backend are dropped with that
  // reason. What a library says, as `origin`, is true of its own kernels alone.
  void SetBackendAvailability(std::string_view backend, UniqueFunction<std::string()> why_not,
                              const std::string& origin = {});
  std::string WhyUnavailable(const Kernel& kernel) const;
  // Whether that was said of this program's own kernels of the backend.
  bool HasAvailability(std::string_view backend) const;
  // The backends that have kernels in this program, by name.
  std::vector<BackendInfo> Backends() const;

  // Sets the backends tried for every operator of a device, or for one operator before those. A
  // backend without a kernel is passed over; an empty list clears. Errors: kNotFound for an
  // operator that is not registered, or a device without kernels. CheckPreference only throws what
  // SetPreference would.
  void SetPreference(DeviceType device, BackendPreference backends);
  void SetPreference(const std::string& op, DeviceType device, BackendPreference backends);
  void CheckPreference(DeviceType device, const BackendPreference& backends) const;
  void CheckPreference(const std::string& op, DeviceType device) const;
  // Preferred backends of an operator, its own first. In a PreferenceScope: those of its time.
  BackendPreference PreferenceOf(std::string_view op, DeviceType device) const;
  // All preferences that hold on this thread now, behind `first`, which are tried for every
  // operator. A plan keeps them, so that shapes that it meets later run on the same backends.
  detail::IntrusivePtr<detail::RefCounted> KeepPreferences(const BackendPreference& first) const;

 private:
  struct State;
  State* const state_;  // its own
};

namespace detail {

// Held by what uses schemas and kernels for longer than a lookup, and while a function of a library
// runs: no library is unloaded meanwhile. Nests; costs two uncontended locks where it does not.
class OPKIT_IMAGE_LOCAL RegistryUse {
 public:
  RegistryUse();
  RegistryUse(const RegistryUse&) = delete;
  RegistryUse& operator=(const RegistryUse&) = delete;
  ~RegistryUse();
  // Whether this thread holds one.
  static bool IsInThisThread();
};
// Held while registrations are removed: begins when nobody uses the registry, and until it ends
// other threads wait before they do. One at a time, and not in a thread that uses it.
class OPKIT_IMAGE_LOCAL RegistryRemoval {
 public:
  RegistryRemoval();
  RegistryRemoval(const RegistryRemoval&) = delete;
  RegistryRemoval& operator=(const RegistryRemoval&) = delete;
  ~RegistryRemoval();
};

// Has PreferenceOf answer on this thread with preferences that KeepPreferences has kept. Nests; the
// innermost counts.
class OPKIT_IMAGE_LOCAL PreferenceScope {
 public:
  explicit PreferenceScope(const RefCounted& preferences);
  PreferenceScope(const PreferenceScope&) = delete;
  PreferenceScope& operator=(const PreferenceScope&) = delete;
  ~PreferenceScope();

 private:
  const RefCounted* const outer_;
};

}  // namespace detail

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema, schemas without a kernel, gradients without an operator), one sentence each;
// empty when nothing is. A good first line of a test.
OPKIT_IMAGE_LOCAL inline std::vector<std::string> CheckRegistrations() {
  return OpRegistry::Global().Problems();
}
OPKIT_IMAGE_LOCAL inline std::vector<std::string> RegisteredOperators() {
  return OpRegistry::Global().Operators();
}

// Caffe2's spellings of OpRegistry::SetPreference.
inline void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(device, std::move(engines));
}
inline void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(op, device, std::move(engines));
}
// From maps: from device types to backends, or to operators and their backends. Nothing is changed
// when one entry is wrong.
template <class EnginesByDevice>
void SetGlobalEnginePref(const EnginesByDevice& pref) {
  for (const auto& [device, engines] : pref) OpRegistry::Global().CheckPreference(device, engines);
  for (const auto& [device, engines] : pref) OpRegistry::Global().SetPreference(device, engines);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const auto& entry : pref) OpRegistry::Global().CheckPreference(op, entry.first);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetPreference(op, device, engines);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const auto& [device, ops] : pref)
    for (const auto& entry : ops) OpRegistry::Global().CheckPreference(entry.first, device);
  for (const auto& [device, ops] : pref)
    for (const auto& [op, engines] : ops) OpRegistry::Global().SetPreference(op, device, engines);
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/op_registry.ipp"
#endif

#endif  // OPKIT_OP_OP_REGISTRY_HPP_
