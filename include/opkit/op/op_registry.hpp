// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// preferences for backends. Registration never throws or exits. Mistakes are stored; the first
// lookup reports them, and CheckRegistrations lists all of them.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

#include "opkit/base/image_mode.hpp"
#include "opkit/base/scoped_value.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/op/schema.hpp"

// Defined in an image (a program or shared object) if one of its units includes plugin/author.hpp.
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True in a library that is loaded at run time: it has its own registries, whatever symbols the
// program exports. Shared objects that a program is linked with share the program's registries.
OPKIT_IMAGE_LOCAL bool HasOwnRegistries();

using BackendPreference = std::vector<std::string>;  // backends to try, in order

}  // namespace detail

// Thread-safe. The schemas and kernels that it returns stay valid until their library is unloaded.
class OpRegistry {
 public:
  // A provider of kernels: its facts in this program and on this machine.
  struct Backend {
    std::string name;
    int rank = 0;
    int kernels = 0;
    std::string why_unavailable;  // empty: its kernels can run here
  };

  OpRegistry();
  ~OpRegistry();

  // Inline, with a static variable inside: the dynamic linker makes this one object for the program
  // and the shared objects that it is linked with.
  OPKIT_VISIBLE static OpRegistry& OfProgram() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }
  OPKIT_IMAGE_LOCAL static OpRegistry& Global();

  // Adds a schema and returns it to be filled in. Two schemas of the same name are one schema if
  // they come from the same place (a header in two translation units), or from the same typed
  // signature. Settings of the second schema have no effect.
  OpSchema& AddSchema(const char* name, const char* file, int line, std::string signature = {});
  // Adds a schema that is filled in already; `owner` keeps it alive.
  void AddSchema(detail::IntrusivePtr<detail::RefCounted> owner, OpSchema& schema);
  // Adds a kernel; ignores a second one from the same place.
  void AddKernel(Kernel kernel);

  // Adds a mistake that its caller has found, such as a second gradient, to Problems. The caller's
  // own lookup reports the mistake.
  void AddProblem(const std::string& op, std::string text);
  // Records that `what`, such as a gradient, is registered for an operator by name, perhaps before
  // the operator itself. Problems lists `what` if the operator is never registered. ForgetExpected
  // deletes the record.
  void ExpectOperator(const std::string& op, std::string what);
  void ForgetExpected(const std::string& op);

  // Returns null if there is none.
  const OpSchema* FindSchema(std::string_view op) const;
  // Returns the schema. Throws kNotFound, with the nearest name, for an operator without a schema;
  // kAlreadyExists for an operator that was registered twice; kFailedPrecondition if the program
  // mixes header-only with compiled units.
  const OpSchema& GetSchema(std::string_view op) const;
  // Returns all kernels of an operator, or its kernels for a device type, in the order of
  // registration.
  std::vector<const Kernel*> KernelsOf(std::string_view op) const;
  std::vector<const Kernel*> FindKernels(std::string_view op, DeviceType device) const;
  // Returns the sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const;
  // Returns all mistakes in the registrations of this program.
  std::vector<std::string> Problems() const;
  // Puts a backend first for an operator, behind the backends that the node and the program
  // request.
  void AddOverride(const std::string& op, const std::string& backend, const std::string& origin);
  // Removes everything that came from a library.
  void RemoveOrigin(const std::string& origin);
  // Removes the operator's schema, kernels and problems; for tests.
  void Remove(std::string_view op);

  // Returns a sentence, with the nearest name, if no kernel of the program has this backend; empty
  // if one has.
  std::string WhyNoBackend(std::string_view backend) const;
  // Throws kNotFound with the sentence of WhyNoBackend, unless it is empty.
  void CheckBackend(std::string_view backend) const;
  // Sets the rank of a backend. Selection orders the backends that no node or preference requests
  // by rank, highest first. "reference" has rank 0; an unranked backend comes last. The higher of
  // two ranks counts. A rank from library `origin` applies only to that library's kernels.
  void SetBackendRank(std::string_view backend, int rank, const std::string& origin = {});
  int BackendRank(std::string_view backend, std::string_view origin = {}) const;
  static constexpr int kUnranked = -1;
  // Sets the function that returns the version of a backend. Tuning writes it beside the times that
  // it measures, because other code has other times. BackendVersion returns an empty text without
  // such a function.
  void SetBackendVersion(std::string_view backend, std::string (*version)());
  std::string BackendVersion(std::string_view backend) const;
  // Sets the function that returns the reason why a backend cannot run on this machine; empty if it
  // can run. The function is called once, at the first node that a kernel of the backend might run.
  // Kernels of an unavailable backend are dropped with the reason. A function from library `origin`
  // applies only to that library's kernels.
  void SetBackendAvailability(std::string_view backend, UniqueFunction<std::string()> why_not,
                              const std::string& origin = {});
  std::string WhyUnavailable(const Kernel& kernel) const;
  // True if SetBackendAvailability was called for this program's own kernels of the backend.
  bool HasAvailability(std::string_view backend) const;
  // Returns the backends that have kernels in this program.
  std::vector<Backend> Backends() const;

  // Sets the backends to try for every operator of a device, or the backends to try first for one
  // operator. A backend without a kernel is skipped; an empty list clears the setting. Throws
  // kNotFound for an operator that is not registered, or for a device without kernels.
  // CheckPreference only throws the errors of SetPreference.
  void SetPreference(DeviceType device, detail::BackendPreference backends);
  void SetPreference(const std::string& op, DeviceType device, detail::BackendPreference backends);
  void CheckPreference(DeviceType device, const detail::BackendPreference& backends) const;
  void CheckPreference(const std::string& op, DeviceType device) const;
  // Returns the preferred backends of an operator, its own first. Inside a PreferenceScope, returns
  // the preferences that the scope holds.
  detail::BackendPreference PreferenceOf(std::string_view op, DeviceType device) const;
  // Returns a copy of all current preferences of this thread, with `first` in front for every
  // operator. A plan keeps the copy, so that runs with new shapes later use the same backends.
  detail::IntrusivePtr<detail::RefCounted> KeepPreferences(
      const detail::BackendPreference& first) const;

 private:
  struct State;
  State* const state_;  // owned
};

namespace detail {

// Prevents the unloading of libraries. Hold it while you use schemas and kernels longer than one
// lookup, and while a library's function runs. Scopes nest; the outermost scope costs two
// uncontended locks.
class OPKIT_IMAGE_LOCAL RegistryUse {
 public:
  RegistryUse();
  RegistryUse(RegistryUse&&) = delete;
  ~RegistryUse();
  // True if this thread holds a RegistryUse.
  static bool IsInThisThread();
};
// Exclusive lock for removing registrations. Waits for all RegistryUse scopes of other threads; new
// scopes block until this object is destroyed. Only one RegistryRemoval exists at a time; its
// thread must not hold a RegistryUse.
class OPKIT_IMAGE_LOCAL RegistryRemoval {
 public:
  RegistryRemoval();
  RegistryRemoval(RegistryRemoval&&) = delete;
  ~RegistryRemoval();
};

// Makes PreferenceOf on this thread return preferences that KeepPreferences has copied. Scopes
// nest; the innermost scope counts.
class OPKIT_IMAGE_LOCAL PreferenceScope {
 public:
  explicit PreferenceScope(const RefCounted& preferences);

 private:
  const ScopedValue<const RefCounted*> preferences_;
};

}  // namespace detail

// Returns all mistakes in the registrations of this program, one sentence each: duplicates with
// both places, kernels without a schema, schemas without a kernel, gradients without an operator. A
// good first line of a test.
OPKIT_IMAGE_LOCAL inline std::vector<std::string> CheckRegistrations() {
  return OpRegistry::Global().Problems();
}
OPKIT_IMAGE_LOCAL inline std::vector<std::string> RegisteredOperators() {
  return OpRegistry::Global().Operators();
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/op_registry.ipp"
#endif

#endif  // OPKIT_OP_OP_REGISTRY_HPP_
