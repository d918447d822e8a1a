// Gradients by operator: REGISTER_GRADIENT names its maker, other macros say that there is none.
// AddGradients (graph/gradient/) and the gradient checker call GetGradientForOp node by node.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HPP_

#include "opkit/op/gradient/gradient_maker.hpp"
#include "opkit/op/registration.hpp"

namespace opkit::inline OPKIT_ABI {

// The kind of gradient that a registration declares for an operator.
enum class GradientKind : uint8_t {
  kMaker,
  kNone,       // no gradient flows through it
  kShouldNot,  // asking is a mistake
  kNotImplemented,
};

struct GradientRegistration {
  using Make = UniqueFunction<GradientOpsMeta(
      const OperatorDef&, const std::vector<GradientValue>& g_output, GradientNames&)>;
  GradientKind kind = GradientKind::kMaker;
  Make make;
  const char* file = "";
  int line = 0;
  std::string problem;  // a second registration; reported when the gradient is asked for

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thread-safe; never throws while it is filled in.
class GradientRegistry {
 public:
  GradientRegistry();
  ~GradientRegistry();
  OPKIT_EXPORT static GradientRegistry& OfProgram() {
    static auto* registry = new GradientRegistry;  // used by static objects of any order
    return *registry;
  }
  OPKIT_IMAGE_LOCAL static GradientRegistry& Global();
  // The same operator from the same place is the same registration; from another place it is kept
  // as a problem, which CheckRegistrations lists.
  OPKIT_IMAGE_LOCAL void Add(const std::string& op, GradientRegistration registration);
  // Null when nothing was registered.
  GradientRegistration* Find(const std::string& op) const;
  // For tests and libraries.
  void Remove(const std::string& op);
  // Names, for an operator without a gradient, a gradient of nearly that name that no operator has;
  // empty where there is none.
  OPKIT_COLD OPKIT_IMAGE_LOCAL std::string FindMisspelt(const std::string& op) const;

 private:
  struct State;
  State* const state_;  // its own
};

// True when the operator has a gradient maker.
OPKIT_IMAGE_LOCAL bool HasGradient(const std::string& op);

// The operators that compute the gradients of a node's inputs, given the names of those of its
// outputs (one for each, empty where none flows). Errors: kNotFound when nothing was registered for
// the operator's gradient; kUnsupported for SHOULD_NOT_DO_GRADIENT and
// GRADIENT_NOT_IMPLEMENTED_YET; kInvalidArgument for a wrong number of gradients or a node its
// schema refuses; kAlreadyExists.
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output,
                                                   GradientNames& names);
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output);

namespace detail {

// The maker's operators, with the device, engine and arguments that they take over from the node.
GradientOpsMeta RunGradientMaker(GradientMakerBase& maker, const OperatorDef& def,
                                 GradientNames& names);

template <class Maker>
GradientOpsMeta MakeGradient(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                             GradientNames& names) {
  static_assert(std::is_base_of_v<GradientMakerBase, Maker>,
                "REGISTER_GRADIENT(name, Maker): Maker must derive from opkit::GradientMakerBase");
  static_assert(
      std::is_constructible_v<Maker, const OperatorDef&, const std::vector<GradientValue>&>,
      "REGISTER_GRADIENT(name, Maker): Maker needs a public constructor (const "
      "opkit::OperatorDef&, std::vector<opkit::GradientValue>); write "
      "`public: using opkit::GradientMakerBase::GradientMakerBase;`");
  Maker maker(def, g_output);
  return RunGradientMaker(maker, def, names);
}

OPKIT_IMAGE_LOCAL bool RegisterGradient(const char* op, GradientKind kind,
                                        GradientRegistration::Make make, const char* file,
                                        int line) noexcept;

}  // namespace detail
}  // namespace opkit

// What opkit/not_included.hpp has in their place.
#undef OPKIT_REGISTER_GRADIENT_STR
#undef OPKIT_REGISTER_GRADIENT
#undef OPKIT_NO_GRADIENT
#undef OPKIT_SHOULD_NOT_DO_GRADIENT
#undef OPKIT_GRADIENT_NOT_IMPLEMENTED_YET
// The maker comes last, so that it may contain commas.
#define OPKIT_REGISTER_GRADIENT_STR(string, ...)                                               \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_GRADIENT);                                                 \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(string, ::opkit::GradientKind::kMaker,                 \
                                        &::opkit::detail::MakeGradient<__VA_ARGS__>, __FILE__, \
                                        __LINE__)
#define OPKIT_REGISTER_GRADIENT(name, ...) OPKIT_REGISTER_GRADIENT_STR(#name, __VA_ARGS__)
#define OPKIT_GRADIENT_STATEMENT(what, name, kind)                                             \
  OPKIT_AT_NAMESPACE_SCOPE(what);                                                              \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(#name, ::opkit::GradientKind::kind, nullptr, __FILE__, \
                                        __LINE__)
// No gradient flows through the operator: its inputs get none.
#define OPKIT_NO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(NO_GRADIENT, name, kNone)
// Asking for its gradient is a mistake (an optimiser's update, a metric).
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) \
  OPKIT_GRADIENT_STATEMENT(SHOULD_NOT_DO_GRADIENT, name, kShouldNot)
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) \
  OPKIT_GRADIENT_STATEMENT(GRADIENT_NOT_IMPLEMENTED_YET, name, kNotImplemented)

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HPP_
