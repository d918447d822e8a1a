// The definitions of GradientRegistry and GetGradientForOp.
#ifndef OPKIT_OP_GRADIENT_IMPL_GRADIENT_IPP_
#define OPKIT_OP_GRADIENT_IMPL_GRADIENT_IPP_

#include "opkit/base/name_map.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/registration/source_place.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/gradient/gradient_hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct GradientRegistry::State {
  detail::Mutex mutex;
  NameMap<GradientRegistration> gradients;
};
OPKIT_INLINE GradientRegistry::GradientRegistry() : state_(new State) {}
OPKIT_INLINE GradientRegistry::~GradientRegistry() { delete state_; }
OPKIT_INLINE GradientRegistry& GradientRegistry::Global() {
  static auto* registry = [] {
    if (!detail::HasOwnRegistries()) return &OfProgram();
    detail::g_delete_gradients.Fill([] { delete &Global(); });
    return new GradientRegistry;
  }();
  return *registry;
}
OPKIT_INLINE void GradientRegistry::Add(const std::string& op, GradientRegistration registration) {
  detail::MutexLock lock(state_->mutex);
  const bool added = !state_->gradients.Has(op);
  GradientRegistration& known = state_->gradients[op];
  if (added) {
    known = std::move(registration);
    constexpr const char* kMacros[] = {"REGISTER_GRADIENT", "NO_GRADIENT", "SHOULD_NOT_DO_GRADIENT",
                                       "GRADIENT_NOT_IMPLEMENTED_YET"};
    OpRegistry::Global().ExpectOperator(
        op, StrCat(kMacros[static_cast<int>(known.kind)], "(", op, ") stands at ", known.Place()));
  }
  if (added || detail::SamePlace(known.file, known.line, registration.file, registration.line))
    return;
  known.problem = StrCat("two gradients of operator ", op, ": at ", known.Place(), " and at ",
                         registration.Place(), "; remove one of them");
  OpRegistry::Global().AddProblem(op, known.problem);
}
OPKIT_INLINE GradientRegistration* GradientRegistry::Find(const std::string& op) const {
  detail::MutexLock lock(state_->mutex);
  return state_->gradients.Find(op);
}
OPKIT_INLINE void GradientRegistry::Remove(const std::string& op) {
  detail::MutexLock lock(state_->mutex);
  state_->gradients.Erase(op);
  OpRegistry::Global().ForgetExpected(op);
}
OPKIT_INLINE std::string GradientRegistry::FindMisspelt(const std::string& op) const {
  detail::MutexLock lock(state_->mutex);
  std::vector<std::string> without_operator;
  for (const auto& row : state_->gradients)
    if (!OpRegistry::Global().FindSchema(row.name)) without_operator.push_back(row.name);
  const std::string nearest = NearestName(op, without_operator);
  if (nearest.empty()) return {};
  return StrCat("; the gradient at ", state_->gradients.Find(nearest)->Place(), " is that of '",
                nearest, "', which no operator is called: is it meant for ", op, "?");
}

OPKIT_INLINE bool HasGradient(const std::string& op) {
  const GradientRegistration* found = GradientRegistry::Global().Find(op);
  return found && found->kind == GradientKind::kMaker;
}

namespace detail {

inline void CheckOutputGradients(const OperatorDef& def,
                                 const std::vector<GradientValue>& g_output) {
  if (g_output.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "operator ", def, " has ", def.outputs().size(),
          " outputs, but ", g_output.size(),
          " output gradients were given; give one for each, an empty GradientValue where none "
          "flows");
  if (const OpSchema* schema = OpRegistry::Global().FindSchema(def.type())) CheckNode(*schema, def);
}
// Makes the gradient of a node that runs its only graph; returns false for any other node.
inline bool MakeCarriedGradient(const OpSchema& schema, const OperatorDef& def,
                                const std::vector<GradientValue>& g_output, GradientNames& names,
                                GradientOpsMeta& meta) {
  if (!schema.needs_subgraph() || def.subgraphs().size() != 1) return false;
  CheckOutputGradients(def, g_output);
  names.ReserveNamesOf(def, g_output);
  return InContext(
      [&] { return def.subgraphs()[0].graph->MakeGradient(def, g_output, names, meta); },
      [&] { return StrCat("in the gradient of the graph that ", def, " carries"); });
}

}  // namespace detail

OPKIT_INLINE GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                              const std::vector<GradientValue>& g_output,
                                              GradientNames& names) {
  const detail::RegistryUse use;
  const std::string& op = def.type();
  GradientRegistration* registration = GradientRegistry::Global().Find(op);
  if (!registration) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(op);  // throws for an unknown operator
    if (GradientOpsMeta meta; detail::MakeCarriedGradient(schema, def, g_output, names, meta))
      return meta;
    Throw(ErrorCode::kNotFound, "operator ", op, " has no gradient: write REGISTER_GRADIENT(", op,
          ", Maker), or NO_GRADIENT(", op,
          ") if none flows through it, or SHOULD_NOT_DO_GRADIENT or GRADIENT_NOT_IMPLEMENTED_YET",
          GradientRegistry::Global().FindMisspelt(op));
  }
  if (!registration->problem.empty()) Throw(ErrorCode::kAlreadyExists, registration->problem);
  if (registration->kind == GradientKind::kShouldNot)
    Throw(ErrorCode::kUnsupported, "operator ", def,
          " must not be differentiated (SHOULD_NOT_DO_GRADIENT at ", registration->Place(),
          "); stop the gradient before it reaches this node");
  if (registration->kind == GradientKind::kNotImplemented) {
    // The private standard operators compute gradients.
    const OpSchema* schema = OpRegistry::Global().FindSchema(op);
    const bool is_second = schema && schema->is_standard() && schema->is_private();
    Throw(ErrorCode::kUnsupported, "the gradient of operator ", op,
          " is not implemented yet (GRADIENT_NOT_IMPLEMENTED_YET at ", registration->Place(), "); ",
          is_second ? "it computes a gradient itself, so that second derivatives need one: compute "
                      "the value by operators whose second derivatives are known, or "
                    : "compute the value by operators that have a gradient, or ",
          "write a maker and REGISTER_GRADIENT(", op, ", Maker) there");
  }
  detail::CheckOutputGradients(def, g_output);
  if (registration->kind == GradientKind::kNone)
    return {{}, std::vector<GradientValue>(def.inputs().size())};
  names.ReserveNamesOf(def, g_output);
  try {
    GradientOpsMeta meta = registration->make(def, g_output, names);
    if (meta.g_input.size() != def.inputs().size())
      Throw(ErrorCode::kInvalidArgument, "it names ", meta.g_input.size(), " input gradients for ",
            def.inputs().size(), " inputs");
    return meta;
  } catch (...) {
    detail::RethrowInContext(
        StrCat("in the gradient maker of ", def, ", registered at ", registration->Place()));
  }
}
OPKIT_INLINE GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                              const std::vector<GradientValue>& g_output) {
  GradientNames names;
  return GetGradientForOp(def, g_output, names);
}

namespace detail {

OPKIT_INLINE GradientOpsMeta RunGradientMaker(GradientMakerBase& maker, const OperatorDef& def,
                                              GradientNames& names) {
  maker.UseNames(&names);
  GradientOpsMeta meta = maker.Get();
  for (OperatorDef& op : meta.ops) {
    op.IsGradientOp(true);
    if (maker.CopyDeviceOption()) op.Device(def.device());
    if (op.process() < 0) op.Process(def.process());
    if (maker.CopyEngine()) op.Backends(def.backends());
    if (!maker.CopyArguments()) continue;
    const OpSchema* schema = OpRegistry::Global().FindSchema(op.type());
    for (const NamedAttribute& arg : def.args())
      if (!op.args().Has(arg.name) && (!schema || schema->TakesArgument(arg.name)))
        op.Arg(arg.name, arg.value);
  }
  return meta;
}
inline bool IsGradientRegistered(const std::string& op) {
  return GradientRegistry::Global().Find(op);
}
OPKIT_INLINE bool RegisterGradient(const char* op, GradientKind kind,
                                   GradientRegistration::Make make, const char* file,
                                   int line) noexcept {
  return Registered([&] {
    g_has_gradient.Fill(&IsGradientRegistered);
    GradientRegistry::Global().Add(op, {kind, std::move(make), file, line, {}});
  });
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_IMPL_GRADIENT_IPP_
