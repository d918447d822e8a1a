// CreateOperator: from a definition to an operator bound to a workspace. Verifies the node against
// its schema, then tries kernels in the order of preference until one takes it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Def is OperatorDef everywhere in this header: templates are compiled where operators are made,
// and not in units that only define some.

// Backend names in the order they are tried: the node's, the operator's preference, the global one,
// the plain operator.
template <class Def>
OPKIT_COLD OPKIT_IMAGE_LOCAL EnginePref EngineOrder(const Def& def) {
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

// Kernels for the node, best first: those of the backends that were asked for, the plain one, and
// the rest, so that an operator that has only such kernels still runs. Where the node's types are
// known, `by_rank`, the rest goes by the ranks of the backends and may come before the plain one.
template <class Def>
OPKIT_COLD OPKIT_IMAGE_LOCAL std::vector<const Kernel*> KernelOrder(const Def& def,
                                                                    bool by_rank = false) {
  const OpRegistry& registry = OpRegistry::Global();
  auto kernels = registry.FindKernels(def.type(), def.device().type);
  std::vector<const Kernel*> order;
  auto take = [&](auto matches) {
    for (const Kernel*& kernel : kernels)
      if (kernel && matches(*kernel)) order.push_back(std::exchange(kernel, nullptr));
  };
  EnginePref engines = EngineOrder(def);
  if (by_rank) engines.pop_back();  // the plain operator's place is its rank
  for (const std::string& engine : engines)
    take([&](const Kernel& kernel) { return kernel.backend == engine; });
  if (by_rank) {
    for (;;) {
      int best = OpRegistry::kUnranked;
      for (const Kernel* kernel : kernels)
        if (kernel) best = (std::max)(best, registry.BackendRank(kernel->backend));
      if (best == OpRegistry::kUnranked) break;
      take([&](const Kernel& kernel) { return registry.BackendRank(kernel.backend) == best; });
    }
  }
  take([](const Kernel&) { return true; });
  return order;
}

template <class Def>
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoKernel(const Def& def,
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

template <class Def>
OPKIT_COLD std::string InConstructor(const Def& def, const Kernel& kernel) {
  return StrCat("in the constructor of operator ", ToString(def), ", registered at ",
                kernel.Place());
}

// Which inputs an output may share memory with: by the configuration where one was chosen, and by
// what the schema allows otherwise.
template <class Def>
OPKIT_COLD std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const Def& def,
                                              const KernelConfig* config = nullptr) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (size_t o = 0; o < masks.size(); ++o)
    for (size_t i = 0; i < def.inputs().size() && i < 64; ++i) {
      const int in = static_cast<int>(i), out = static_cast<int>(o);
      if (config ? schema.MustInplace(in, out) : schema.CanInplace(in, out))
        masks[o] |= uint64_t{1} << i;
    }
  if (config)
    for (const auto& [in, out] : config->inplace)
      if (in < 64) masks[static_cast<size_t>(out)] |= uint64_t{1} << in;
  return masks;
}

// Error (kInvalidArgument) for a configuration that does not fit the node.
template <class Def>
OPKIT_COLD void CheckConfig(const Kernel& kernel, const Def& def, const KernelConfig& config) {
  auto wrong = [&](const std::string& what) {
    Throw(ErrorCode::kInvalidArgument, "the configuration that the kernel of ", kernel.op, " at ",
          kernel.Place(), " proposes for ", ToString(def), " ", what);
  };
  const size_t inputs = def.inputs().size(), outputs = def.outputs().size();
  auto check_layouts = [&](size_t found, size_t expected, const char* values) {
    if (found != 0 && found != expected)
      wrong(StrCat("has layouts for ", found, " ", values, ", expected none or ", expected));
  };
  check_layouts(config.input_layouts.size(), inputs, "inputs");
  check_layouts(config.output_layouts.size(), outputs, "outputs");
  for (const auto& [in, out] : config.inplace)
    if (in < 0 || out < 0 || static_cast<size_t>(in) >= inputs ||
        static_cast<size_t>(out) >= outputs)
      wrong(StrCat("pairs input ", in, " with output ", out, " in place, but the node has ", inputs,
                   " inputs and ", outputs, " outputs"));
  if (config.scratch_bytes < 0) wrong(StrCat("needs ", config.scratch_bytes, " bytes of scratch"));
}

// An operator made by `kernel`, with what the registry knows of it. Errors get the node and the
// kernel as context; null where the creator returned it.
template <class Def>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                                    const Def& def, Workspace* ws,
                                                    const KernelConfig* config) {
  try {
    std::unique_ptr<OperatorBase> op = kernel.create(def, ws, config);
    if (!op) return op;
    if (config && !op->config()) op->SetConfig(*config);
    op->SetRegistration(kernel.file, kernel.line);
    op->SetInplaceMasks(InplaceMasks(schema, def, config));
    return op;
  } catch (Error& error) {
    error.AddContext(InConstructor(def, kernel));
    throw;
  } catch (const std::exception& thrown) {
    Error error(ErrorCode::kOperatorFailed, thrown.what());
    error.SetCause(std::current_exception());
    throw error.AddContext(InConstructor(def, kernel));
  }
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

// The operator of the kernel that was chosen for it.
template <class Def>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateChosen(const OpSchema& schema, const Def& def,
                                                      Workspace* ws, const Kernel& kernel,
                                                      const KernelConfig* config) {
  if (kernel.op != def.type() || kernel.device != def.device().type)
    Throw(ErrorCode::kInvalidArgument, "the kernel given, of ", kernel.op, " for ",
          ToString(kernel.device), " at ", kernel.Place(), ", cannot run ", ToString(def), " on ",
          ToString(def.device()));
  if (config) CheckConfig(kernel, def, *config);
  auto op = CreateWith(kernel, schema, def, ws, config);
  if (!op)
    throw UnsupportedOperatorFeature(
        StrCat("the creator of ", kernel.op, " at ", kernel.Place(), " returned null"));
  return op;
}
// The operator of the first kernel that takes it.
template <class Def>
OPKIT_COLD OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateFirst(const OpSchema& schema,
                                                                       const Def& def,
                                                                       Workspace* ws) {
  std::string refused;
  for (const Kernel* kernel : KernelOrder(def)) {
    try {
      if (auto op = CreateWith(*kernel, schema, def, ws, nullptr)) return op;
      refused += StrCat("\n  backend ", kernel->backend, ": its creator returned null");
    } catch (const UnsupportedOperatorFeature& error) {
      refused += StrCat("\n  backend ", kernel->backend, ": ", error.message());
    }
  }
  ThrowNoKernel(def, refused);
}

}  // namespace detail

// What was decided for a node before its operator is made.
struct CreateOptions {
  const Kernel* kernel = nullptr;        // null: the first one that takes the node
  const KernelConfig* config = nullptr;  // one that the kernel proposed; copied
  int net_position = -1;
};

// Errors: kNotFound (unknown operator or engine, no kernel for the device, missing input blob),
// with the nearest name; kInvalidArgument (the node breaks the schema, or the kernel or
// configuration given is not for it); kUnsupported (every kernel refused it, with each reason);
// kAlreadyExists (registered twice). UnsupportedOperatorFeature where a kernel was given and
// refuses the node: the next one may take it. The workspace is then as it was.
template <class Def = OperatorDef>
OPKIT_COLD OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(
    const Def& def, Workspace* ws, const CreateOptions& options) {
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (options.config && !options.kernel)
      Throw(ErrorCode::kInvalidArgument, "CreateOperator of ", ToString(def),
            " was given a configuration without the kernel that proposed it");
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
    detail::OutputBlobGuard guard(def, ws);
    auto op = options.kernel
                  ? detail::CreateChosen(schema, def, ws, *options.kernel, options.config)
                  : detail::CreateFirst(schema, def, ws);
    op->set_net_position(options.net_position);
    guard.Keep();
    return op;
  } catch (...) {
    if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
    throw;
  }
}
template <class Def = OperatorDef>
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const Def& def, Workspace* ws,
                                                               int net_position = -1) {
  return CreateOperator(def, ws, {.net_position = net_position});
}

}  // namespace opkit

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_
