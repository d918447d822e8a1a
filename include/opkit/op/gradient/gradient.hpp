// Gradients by operator: REGISTER_GRADIENT names an operator's gradient maker; other macros declare
// that an operator has no gradient. AddGradients (graph/gradient/) and the gradient checker call
// GetGradientForOp for each node.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HPP_

#include "opkit/op/gradient/gradient_maker.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kind of gradient that a registration declares for an operator.
enum class GradientKind : uint8_t {
  kMaker,
  kNone,       // no gradient flows through the operator
  kShouldNot,  // a request for the gradient is a mistake
  kNotImplemented,
};

// A registered gradient of an operator.
struct GradientRegistration {
  using Make = UniqueFunction<GradientOpsMeta(
      const OperatorDef&, const std::vector<GradientValue>& g_output, GradientNames&)>;
  GradientKind kind = GradientKind::kMaker;
  Make make;
  const char* file = "";
  int line = 0;
  std::string problem;  // a second registration; GetGradientForOp reports it

  std::string Place() const { return StrCat(file, ":", line); }
};

// The gradients of all operators. Thread-safe; never throws during registration.
class GradientRegistry {
 public:
  GradientRegistry();
  ~GradientRegistry();
  OPKIT_VISIBLE static GradientRegistry& OfProgram() {
    static auto* registry = new GradientRegistry;  // used by static objects of any order
    return *registry;
  }
  OPKIT_IMAGE_LOCAL static GradientRegistry& Global();
  // Adds a registration. A second registration of the same operator is ignored if it comes from the
  // same place of the source. From another place it becomes a problem, which CheckRegistrations
  // lists.
  OPKIT_IMAGE_LOCAL void Add(const std::string& op, GradientRegistration registration);
  // Returns null if nothing was registered.
  GradientRegistration* Find(const std::string& op) const;
  // Removes a registration; for tests and libraries.
  void Remove(const std::string& op);
  // For an operator without a gradient: looks for a gradient whose registered name is nearly the
  // same and belongs to no operator. Returns the end of a message with that name; empty if nothing
  // is found.
  OPKIT_COLD OPKIT_IMAGE_LOCAL std::string FindMisspelt(const std::string& op) const;

 private:
  struct State;
  State* const state_;  // owned
};

// True if the operator has a gradient maker.
OPKIT_IMAGE_LOCAL bool HasGradient(const std::string& op);

// Returns the operators that compute the gradients of a node's inputs. `g_output` has one entry for
// each output: the names of its gradient, empty if no gradient flows. Throws kNotFound if no
// gradient was registered for the operator; kUnsupported for SHOULD_NOT_DO_GRADIENT and
// GRADIENT_NOT_IMPLEMENTED_YET; kInvalidArgument for a wrong number of gradients, or for a node
// that its schema refuses; kAlreadyExists for a gradient that was registered twice.
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output,
                                                   GradientNames& names);
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output);

namespace detail {

// Returns the maker's operators, with the device, engine and arguments that they copy from the
// node.
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
}}  // namespace opkit

// Replaces the macros that opkit/not_included.hpp defines.
#undef OPKIT_REGISTER_GRADIENT_STR
#undef OPKIT_REGISTER_GRADIENT
#undef OPKIT_NO_GRADIENT
#undef OPKIT_SHOULD_NOT_DO_GRADIENT
#undef OPKIT_GRADIENT_NOT_IMPLEMENTED_YET
// Registers a gradient maker. The maker comes last, so that it may contain commas.
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
// Declares that no gradient flows through the operator: its inputs get no gradient.
#define OPKIT_NO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(NO_GRADIENT, name, kNone)
// Declares that a request for the gradient is a mistake (an optimiser's update, a metric).
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) \
  OPKIT_GRADIENT_STATEMENT(SHOULD_NOT_DO_GRADIENT, name, kShouldNot)
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) \
  OPKIT_GRADIENT_STATEMENT(GRADIENT_NOT_IMPLEMENTED_YET, name, kNotImplemented)

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HPP_
