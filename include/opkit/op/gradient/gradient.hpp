// Gradients by operator: REGISTER_GRADIENT names its maker, other macros say that there is none.
// GetGradientForOp is asked node by node by whoever differentiates a graph, and by the gradient
// checker.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HPP_

#include "opkit/op/gradient/gradient_maker.hpp"
#include "opkit/op/registration.hpp"

namespace opkit::inline OPKIT_ABI {

// What was said about the gradient of an operator.
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

// Thread-safe; never throws while it is filled in. A template, like what asks it, so that programs
// without gradients do not compile it.
template <class Registration>
class BasicGradientRegistry {
 public:
  OPKIT_IMAGE_LOCAL static BasicGradientRegistry& Global() {
    static auto* registry = detail::HasOwnRegistries() ? new BasicGradientRegistry : &OfProgram();
    return *registry;
  }
  OPKIT_EXPORT static BasicGradientRegistry& OfProgram() {
    static auto* registry = new BasicGradientRegistry;  // used by static objects of any order
    return *registry;
  }
  // The same operator from the same place is the same registration; from another place it is kept
  // as a problem, which CheckRegistrations lists.
  OPKIT_IMAGE_LOCAL void Add(const std::string& op, Registration registration) {
    detail::MutexLock lock(mutex_);
    auto& known = gradients_[op];
    if (!known) {
      known = std::make_unique<Registration>(std::move(registration));
    } else if (!OpRegistry::SamePlace(known->file, known->line, registration.file,
                                      registration.line)) {
      known->problem = StrCat("two gradients of operator ", op, ": at ", known->Place(), " and at ",
                              registration.Place(), "; remove one of them");
      OpRegistry::Global().AddProblem(op, known->problem);
    }
  }
  // Null when nothing was said.
  Registration* Find(const std::string& op) const {
    detail::MutexLock lock(mutex_);
    const auto it = gradients_.find(op);
    return it == gradients_.end() ? nullptr : it->second.get();
  }
  // For tests and libraries.
  void Remove(const std::string& op) {
    detail::MutexLock lock(mutex_);
    gradients_.erase(op);
  }

 private:
  mutable detail::Mutex mutex_;
  std::map<std::string, std::unique_ptr<Registration>> gradients_;
};
using GradientRegistry = BasicGradientRegistry<GradientRegistration>;

// True when the operator has a gradient maker.
template <class Registry = GradientRegistry>
OPKIT_IMAGE_LOCAL bool HasGradient(const std::string& op) {
  const auto* found = Registry::Global().Find(op);
  return found && found->kind == GradientKind::kMaker;
}

// The operators that compute the gradients of a node's inputs, given the names of those of its
// outputs (one for each, empty where none flows). Errors: kNotFound when nothing was said about the
// operator's gradient; kUnsupported for SHOULD_NOT_DO_GRADIENT and GRADIENT_NOT_IMPLEMENTED_YET;
// kInvalidArgument for a wrong number of gradients or a node its schema refuses; kAlreadyExists.
template <class Text, class Registry = GradientRegistry>
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output,
                                                   BasicGradientNames<Text>& names) {
  const std::string& op = def.type();
  auto* registration = Registry::Global().Find(op);
  if (!registration) {
    static_cast<void>(OpRegistry::Global().GetSchema(op));  // an unknown operator says so
    Throw(ErrorCode::kNotFound, "operator ", op, " has no gradient: write REGISTER_GRADIENT(", op,
          ", Maker), or NO_GRADIENT(", op,
          ") if none flows through it, or "
          "SHOULD_NOT_DO_GRADIENT or GRADIENT_NOT_IMPLEMENTED_YET");
  }
  if (!registration->problem.empty()) Throw(ErrorCode::kAlreadyExists, registration->problem);
  if (registration->kind == GradientKind::kShouldNot)
    Throw(ErrorCode::kUnsupported, "operator ", ToString(def),
          " must not be differentiated "
          "(SHOULD_NOT_DO_GRADIENT at ",
          registration->Place(), "); stop the gradient before it reaches this node");
  if (registration->kind == GradientKind::kNotImplemented)
    Throw(ErrorCode::kUnsupported, "the gradient of operator ", op,
          " is not implemented yet "
          "(GRADIENT_NOT_IMPLEMENTED_YET at ",
          registration->Place(), "); write a maker and REGISTER_GRADIENT(", op, ", Maker) there");
  if (g_output.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def), " has ", def.outputs().size(),
          " outputs, but ", g_output.size(),
          " output gradients were given; give one for each, an "
          "empty GradientValue where none flows");
  if (const OpSchema* schema = OpRegistry::Global().FindSchema(op))
    if (std::string why = schema->Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (registration->kind == GradientKind::kNone)
    return {{}, std::vector<GradientValue>(def.inputs().size())};
  names.ReserveNamesOf(def, g_output);
  try {
    GradientOpsMeta meta = registration->make(def, g_output, names);
    if (meta.g_input.size() != def.inputs().size())
      Throw(ErrorCode::kInvalidArgument, "it names ", meta.g_input.size(), " input gradients for ",
            def.inputs().size(), " inputs");
    return meta;
  } catch (Error& error) {
    error.AddContext(StrCat("in the gradient maker of ", ToString(def), ", registered at ",
                            registration->Place()));
    throw;
  }
}
template <class Names = GradientNames>
OPKIT_IMAGE_LOCAL GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                                   const std::vector<GradientValue>& g_output) {
  Names names;
  return GetGradientForOp(def, g_output, names);
}

namespace detail {

// What the maker says, and what its operators take over from the node.
template <class Value, class NameMap>
GradientOpsMeta RunGradientMaker(BasicGradientMaker<Value, NameMap>& maker, const OperatorDef& def,
                                 NameMap& names) {
  maker.UseNames(&names);
  GradientOpsMeta meta = maker.Get();
  for (auto& op : meta.ops) {
    op.IsGradientOp(true);
    if (maker.CopyDeviceOption()) op.Device(def.device());
    if (maker.CopyEngine()) op.Engine(def.engine());
    if (!maker.CopyArguments()) continue;
    for (const NamedAttribute& arg : def.args())
      if (!op.args().Has(arg.name)) op.Arg(arg.name, arg.value);
  }
  return meta;
}

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

template <class Registry = GradientRegistry>
OPKIT_IMAGE_LOCAL bool RegisterGradient(const char* op, GradientKind kind,
                                        GradientRegistration::Make make, const char* file,
                                        int line) noexcept {
  try {
    Registry::Global().Add(op, {kind, std::move(make), file, line, {}});
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace detail
}  // namespace opkit

// The maker comes last, so that it may contain commas.
#define OPKIT_REGISTER_GRADIENT_STR(string, ...)                                               \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(string, ::opkit::GradientKind::kMaker,                 \
                                        &::opkit::detail::MakeGradient<__VA_ARGS__>, __FILE__, \
                                        __LINE__)
#define OPKIT_REGISTER_GRADIENT(name, ...) OPKIT_REGISTER_GRADIENT_STR(#name, __VA_ARGS__)
#define OPKIT_GRADIENT_STATEMENT(name, kind)                                                   \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(#name, ::opkit::GradientKind::kind, nullptr, __FILE__, \
                                        __LINE__)
// No gradient flows through the operator: its inputs get none.
#define OPKIT_NO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(name, kNone)
// Asking for its gradient is a mistake (an optimiser's update, a metric).
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(name, kShouldNot)
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) OPKIT_GRADIENT_STATEMENT(name, kNotImplemented)

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HPP_
