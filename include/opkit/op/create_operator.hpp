// CreateOperator: from a definition to an operator bound to a workspace. Verifies the node against
// its schema, then tries kernels in the order of preference until one takes it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Backend names in the order they are tried: the node's, the operator's preference, the global one,
// the plain operator.
inline EnginePref EngineOrder(const OperatorDef& def) {
  EnginePref order;
  std::string_view engines = def.engine();
  while (!engines.empty()) {
    const size_t comma = engines.find(',');
    std::string_view name = engines.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) order.emplace_back(name);
    if (!name.empty() && name != "DEFAULT") OpRegistry::Global().CheckBackend(order.back());
    engines = comma == std::string_view::npos ? std::string_view() : engines.substr(comma + 1);
  }
  for (std::string& name : OpRegistry::Global().EnginePrefs(def.type(), def.device().type))
    order.push_back(std::move(name));
  order.emplace_back("DEFAULT");
  for (std::string& name : order)
    if (name == "DEFAULT") name = kReferenceBackend;
  return order;
}

// Kernels for the node, best first. A backend nobody asked for comes last, so that an operator that
// has only such kernels still runs.
inline std::vector<const Kernel*> KernelOrder(const OperatorDef& def) {
  const auto kernels = OpRegistry::Global().FindKernels(def.type(), def.device().type);
  std::vector<const Kernel*> order;
  auto add = [&](const Kernel* kernel) {
    for (const Kernel* known : order)
      if (known == kernel) return;
    order.push_back(kernel);
  };
  for (const std::string& engine : EngineOrder(def))
    for (const Kernel* kernel : kernels)
      if (kernel->backend == engine) add(kernel);
  for (const Kernel* kernel : kernels) add(kernel);
  return order;
}

[[noreturn]] OPKIT_COLD inline void ThrowNoKernel(const OperatorDef& def,
                                                  const std::string& refused) {
  if (!refused.empty())
    Throw(ErrorCode::kUnsupported, "no kernel of operator ", ToString(def), " on ",
          ToString(def.device()), " accepts this node:", refused);
  std::string others;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    others += StrCat(others.empty() ? "" : ", ", ToString(kernel->device), " (", kernel->backend,
                     ", ", kernel->Place(), ")");
  Throw(ErrorCode::kNotFound, "operator ", ToString(def), " has no kernel for ",
        ToString(def.device()), "; it has ",
        others.empty() ? "none at all" : "kernels for " + others);
}

OPKIT_COLD inline std::string InConstructor(const OperatorDef& def, const Kernel& kernel) {
  return StrCat("in the constructor of operator ", ToString(def), ", registered at ",
                kernel.Place());
}

inline std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (size_t o = 0; o < masks.size(); ++o)
    for (size_t i = 0; i < def.inputs().size() && i < 64; ++i)
      if (schema.CanInplace(static_cast<int>(i), static_cast<int>(o))) masks[o] |= uint64_t{1} << i;
  return masks;
}

// Removes the blobs that a failed construction left behind.
class OutputBlobGuard {
 public:
  OutputBlobGuard(const OperatorDef& def, Workspace* ws) : ws_(ws) {
    for (const std::string& name : def.outputs())
      if (!name.empty() && !ws->HasBlob(name)) created_.push_back(name);
  }
  ~OutputBlobGuard() {
    if (!kept_)
      for (const std::string& name : created_) ws_->RemoveBlob(name);
  }
  void Keep() { kept_ = true; }

 private:
  Workspace* ws_;
  std::vector<std::string> created_;
  bool kept_ = false;
};

}  // namespace detail

// Errors: kNotFound (unknown operator or engine, no kernel for the device, missing input blob),
// with the nearest name; kInvalidArgument (the node breaks the schema); kUnsupported (every kernel
// refused it, with each reason); kAlreadyExists (registered twice). The workspace is then as it
// was.
inline std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                    int net_position = -1) {
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
    detail::OutputBlobGuard guard(def, ws);
    std::string refused;
    for (const Kernel* kernel : detail::KernelOrder(def)) {
      std::unique_ptr<OperatorBase> op;
      try {
        op = const_cast<Kernel*>(kernel)->create(def, ws);
      } catch (const UnsupportedOperatorFeature& error) {
        refused += StrCat("\n  backend ", kernel->backend, ": ", error.message());
        continue;
      } catch (Error& error) {
        error.AddContext(detail::InConstructor(def, *kernel));
        throw;
      } catch (const std::exception& thrown) {
        Error error(ErrorCode::kOperatorFailed, thrown.what());
        error.SetCause(std::current_exception());
        throw error.AddContext(detail::InConstructor(def, *kernel));
      }
      if (!op) {
        refused += StrCat("\n  backend ", kernel->backend, ": its creator returned null");
        continue;
      }
      op->SetRegistration(kernel->file, kernel->line, detail::InplaceMasks(schema, def));
      op->set_net_position(net_position);
      guard.Keep();
      return op;
    }
    detail::ThrowNoKernel(def, refused);
  } catch (...) {
    if (ws && net_position != -1) ws->last_failed_op_net_position = net_position;
    throw;
  }
}

}  // namespace opkit

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_
