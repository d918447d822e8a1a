// The registration macros: OPERATOR_SCHEMA and REGISTER_<DEVICE>_OPERATOR. Each expands to a static
// initialiser at namespace scope, in a source file or a header.
#ifndef OPKIT_OP_REGISTRATION_HPP_
#define OPKIT_OP_REGISTRATION_HPP_

#include "opkit/base/fixed_name.hpp"
#include "opkit/macros.hpp"
#include "opkit/op/call/operator_call.hpp"
#include "opkit/op/operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class Op>
inline constexpr bool kTakesConfig =
    std::is_constructible_v<Op, const OperatorDef&, Workspace*, const KernelConfig*>;

template <class Op>
std::unique_ptr<OperatorBase> CreateClass(const OperatorDef& def, Workspace* ws,
                                          [[maybe_unused]] const KernelConfig* config) {
  static_assert(
      std::is_base_of_v<OperatorBase, Op>,
      "REGISTER_*_OPERATOR(name, Class): Class must derive from opkit::Operator<Context>");
  static_assert(!std::is_abstract_v<Op>,
                "REGISTER_*_OPERATOR(name, Class): Class must override bool RunOnDevice()");
  static_assert(std::is_constructible_v<Op, const OperatorDef&, Workspace*> || kTakesConfig<Op>,
                "REGISTER_*_OPERATOR(name, Class): Class needs a constructor "
                "(const opkit::OperatorDef&, opkit::Workspace*)");
  if constexpr (kTakesConfig<Op>)
    return std::make_unique<Op>(def, ws, config);
  else
    return std::make_unique<Op>(def, ws);
}

// Runs `add`; returns false if `add` throws, because static initialisers must not throw. A failed
// registration (out of memory) appears later as a missing kernel.
template <class F>
bool Registered(F add) noexcept {
  try {
    return add(), true;
  } catch (...) {
    return false;
  }
}
// A kernel as a macro registers it. `file` is a literal; the registry copies the other strings.
struct KernelRegistration {
  const char* op;
  DeviceType device;
  const char* backend;  // "" or "DEFAULT": the reference backend
  Kernel::Priority priority;
  const char* file;
  int line;
};
OPKIT_IMAGE_LOCAL bool RegisterKernel(const KernelRegistration& kernel,
                                      OperatorCreator create) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterProposingKernel(const KernelRegistration& kernel,
                                               OperatorCreator create, KernelProposer propose,
                                               KernelFuser fuse = {}) noexcept;
// Registers a plain function as creator, so that a registering unit need not compile
// OperatorCreator.
using CreateFunction = std::unique_ptr<OperatorBase> (*)(const OperatorDef&, Workspace*,
                                                         const KernelConfig*);
OPKIT_IMAGE_LOCAL bool RegisterFunction(const KernelRegistration& kernel,
                                        CreateFunction create) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendRank(const char* backend, int rank) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendVersion(const char* backend,
                                              std::string (*version)()) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendAvailability(const char* backend,
                                                   std::string (*why_not)()) noexcept;

// Makes the name Propose ambiguous in AmbiguousPropose<Op> if Op has a member of that name, of any
// kind and access.
struct NamesPropose {
  void Propose();
};
template <class Op>
struct AmbiguousPropose : Op, NamesPropose {};
// True if Op has a member named Propose. In a final class, which cannot be a base, a private member
// is not found.
template <class Op>
consteval bool HasMemberPropose() {
  if constexpr (std::is_final_v<Op>)
    return requires { &Op::Propose; } ||
           requires(Op& op, KernelQuery& query) { op.Propose(query); };
  else
    return !requires { &AmbiguousPropose<Op>::Propose; };
}

template <class Op>
OPKIT_IMAGE_LOCAL bool RegisterClass(const KernelRegistration& kernel) noexcept {
  if constexpr (requires { KernelFuser(&Op::Fuse); }) {
    return RegisterProposingKernel(kernel, &CreateClass<Op>, &Op::Propose, &Op::Fuse);
  } else if constexpr (requires { KernelProposer(&Op::Propose); }) {
    return RegisterProposingKernel(kernel, &CreateClass<Op>, &Op::Propose);
  } else {
    if constexpr (std::is_base_of_v<OperatorBase, Op>)  // others get the message of CreateClass
      static_assert(!HasMemberPropose<Op>(),
                    "REGISTER_*_OPERATOR(name, Class): Class's Propose must be public, and "
                    "`static std::vector<KernelConfig> Propose(const KernelQuery&)`");
    return RegisterFunction(kernel, &CreateClass<Op>);
  }
}

template <template <class...> class Op>
bool RegisterClass(const KernelRegistration&) {
  static_assert(std::is_void_v<Op<CPUContext>>,
                "REGISTER_*_OPERATOR(name, Class): Class is a class template; write its context as "
                "well, such as Class<CPUContext>");
  return false;
}

}}}  // namespace opkit::detail

// A class registration calls the function that OPERATOR_SCHEMA defines. A forgotten schema is then
// a link error, and the name of the missing symbol says what to write.
#define OPKIT_SCHEMA_ANCHOR(name) opkit_add_OPERATOR_SCHEMA_for_##name
// Begins a macro with an anchor: checks the scope and the name.
#define OPKIT_REGISTRATION_OF(macro, name)                                                   \
  OPKIT_AT_NAMESPACE_SCOPE(macro);                                                           \
  static_assert(::opkit::detail::IsIdentifier(#name), #macro                                 \
                "(name, …): the name is an identifier; where it is that of a function or " \
                "class in a namespace, write the macro there")

// OPERATOR_SCHEMA(Scale).NumInputs(1).NumOutputs(1)…;
#define OPKIT_OPERATOR_SCHEMA(name)                                                          \
  OPKIT_REGISTRATION_OF(OPERATOR_SCHEMA, name);                                              \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {} \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                   \
      ::opkit::OpRegistry::Global().AddSchema(#name, __FILE__, __LINE__)

// Registers a class; the general form. `device` is a DeviceType, `backend` a string; the class
// comes last, so that it may contain commas. Your own device type needs one line:
//   #define REGISTER_NPU_OPERATOR(...) OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, __VA_ARGS__)
// A class with several configurations returns them from a static function. It takes the selected
// configuration as the third argument of its constructor, or reads config():
//   static std::vector<KernelConfig> Propose(const KernelQuery& query);
// (Invoke of such an operator needs opkit/graph.hpp in the program.)
//   ConvOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
//       : Operator<Context>(def, ws, config) {}           // null where none was chosen
// A class that can fuse its node with the next node (op/fusion.hpp) has a function beside Propose:
//   static std::optional<FusedNode> Fuse(const FusionQuery& query);
#define OPKIT_REGISTER_OPERATOR(device, name, backend, priority, ...)                \
  OPKIT_REGISTRATION_OF(REGISTER_OPERATOR, name);                                    \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)(); \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                   \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                  \
       ::opkit::detail::RegisterClass<__VA_ARGS__>(                                  \
           {#name, device, backend, ::opkit::Kernel::Priority::priority, __FILE__, __LINE__}))
// Registers by string, for names that are not identifiers and for kernels of another binary's
// operator. A missing schema is reported at the first lookup.
#define OPKIT_REGISTER_OPERATOR_STR(device, string, backend, ...)  \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OPERATOR_STR);                 \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) = \
      ::opkit::detail::RegisterClass<__VA_ARGS__>(                 \
          {string, device, backend, ::opkit::Kernel::Priority::kDefault, __FILE__, __LINE__})
// Sets the rank of a backend. Selection tries the backends that no node or preference requests by
// rank, highest first; "reference" has rank 0. OPKIT_REGISTER_BACKEND_RANK("eigen", 100);
#define OPKIT_REGISTER_BACKEND_RANK(backend, rank)               \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_RANK);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_rank_) = \
      ::opkit::detail::RegisterBackendRank(backend, rank)
// Registers a function that returns the version of the library behind a backend; tuning measures
// anew where it differs: OPKIT_REGISTER_BACKEND_VERSION("mine", [] { return "2.1"; });
#define OPKIT_REGISTER_BACKEND_VERSION(backend, ...)                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_VERSION);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_version_) = \
      ::opkit::detail::RegisterBackendVersion(backend,              \
                                              []() -> std::string { return (__VA_ARGS__)(); })
// Registers a function that returns the reason why the backend cannot run on this machine, else "":
//   OPKIT_REGISTER_BACKEND_AVAILABILITY("avx512", [] { return HasAvx512() ? "" : "no AVX-512"; });
#define OPKIT_REGISTER_BACKEND_AVAILABILITY(backend, ...)                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_AVAILABILITY);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_availability_) = \
      ::opkit::detail::RegisterBackendAvailability(                      \
          backend, []() -> std::string { return (__VA_ARGS__)(); })
// Registers a creator function (const OperatorDef&, Workspace*) -> std::unique_ptr<OperatorBase>,
// which may take a const KernelConfig* as well.
#define OPKIT_REGISTER_OPERATOR_CREATOR(device, name, ...)                                     \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OPERATOR_CREATOR);                                         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                             \
      ::opkit::detail::RegisterKernel(                                                         \
          {#name, device, "DEFAULT", ::opkit::Kernel::Priority::kDefault, __FILE__, __LINE__}, \
          __VA_ARGS__)

#define OPKIT_REGISTER_DEVICE_OPERATOR(device, name, ...) \
  OPKIT_REGISTER_OPERATOR(device, name, "DEFAULT", kDefault, __VA_ARGS__)

#define OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(device, name, priority, ...) \
  OPKIT_REGISTER_OPERATOR(device, name, "DEFAULT", priority, __VA_ARGS__)

#define OPKIT_REGISTER_CPU_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPU, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPU, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_PRIORITY(name, priority, ...)                    \
  OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(::opkit::DeviceType::kCPU, name, priority, \
                                               __VA_ARGS__)

#define OPKIT_REGISTER_CPU_STREAM_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPUStream, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPUStream, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_PRIORITY(name, priority, ...)                   \
  OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(::opkit::DeviceType::kCPUStream, name, priority, \
                                               __VA_ARGS__)

// Keeps the registrations of a static archive. A linker takes only the objects to which other code
// refers, and no code refers to a registration. Put OPKIT_REGISTRATIONS(my_ops) in the archive's
// source file and OPKIT_USE_REGISTRATIONS(my_ops) in the program, or link with the CMake function
// opkit_link_operators.
#define OPKIT_REGISTRATIONS(group)               \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTRATIONS); \
  extern "C" void opkit_use_registrations_of_##group() {}
#define OPKIT_USE_REGISTRATIONS(group)                                    \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_USE_REGISTRATIONS);                      \
  extern "C" void opkit_use_registrations_of_##group();                   \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_registrations_) = \
      (opkit_use_registrations_of_##group(), true)

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/registration.ipp"
#endif

#endif  // OPKIT_OP_REGISTRATION_HPP_
