// CreateOperator's definitions: the order of kernels, and the creation of an operator by a kernel.
#ifndef OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_
#define OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_

#include <cstdlib>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/scoped_value.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/typed/typed_class.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the names between the commas of a text; "DEFAULT" becomes "reference".
inline BackendPreference SplitBackends(std::string_view text) {
  BackendPreference names;
  while (!text.empty()) {
    const size_t comma = (std::min)(text.find(','), text.size());
    std::string_view name = text.substr(0, comma);
    constexpr std::string_view kSpace = " \t\r\n";
    name.remove_prefix((std::min)(name.find_first_not_of(kSpace), name.size()));
    name.remove_suffix(name.size() - (name.find_last_not_of(kSpace) + 1));
    if (!name.empty()) names.emplace_back(name == "DEFAULT" ? kReferenceBackend : name);
    text.remove_prefix((std::min)(comma + 1, text.size()));
  }
  return names;
}

OPKIT_INLINE const BackendPreference& AllowedBackends() {
  static const BackendPreference allowed = [] {
    const char* const text = std::getenv("OPKIT_BACKENDS");
    BackendPreference names = SplitBackends(text ? text : "");
    if (names.empty() || !IsLoadedLibrary()) return names;
    // In the program the library's plain kernels may have the backend name "my_ops", and the
    // kernels of its backend "fast" the name "my_ops.fast".
    for (size_t i = names.size(); i > 0; --i)
      if (const size_t dot = names[i - 1].rfind('.'); dot != std::string::npos)
        names.push_back(names[i - 1].substr(dot + 1));
    names.emplace_back(kReferenceBackend);
    return names;
  }();
  return allowed;
}

OPKIT_INLINE BackendPreference BackendOrder(const OperatorDef& def) {
  const OpRegistry& registry = OpRegistry::Global();
  BackendPreference order = SplitBackends(def.backends());
  if (!def.requires_backends()) {
    for (const std::string& name : AllowedBackends()) order.push_back(name);
    for (std::string& name : registry.PreferenceOf(def.type(), def.device().type))
      order.push_back(std::move(name));
    order.emplace_back("DEFAULT");
  }
  for (std::string& name : order)
    if (name == "DEFAULT") name = kReferenceBackend;
  return order;
}

OPKIT_INLINE std::vector<std::pair<std::string, std::string>> MissingBackends(
    const OperatorDef& def) {
  std::vector<std::pair<std::string, std::string>> missing;
  for (std::string& backend : BackendOrder(def)) {
    std::string why = OpRegistry::Global().WhyNoBackend(backend);
    if (backend != kReferenceBackend && !why.empty())
      missing.emplace_back(std::move(backend), std::move(why));
  }
  return missing;
}
OPKIT_INLINE void CheckBackends(const OperatorDef& def) {
  for (const auto& [backend, why] : MissingBackends(def)) Throw(ErrorCode::kNotFound, why);
}

OPKIT_INLINE void CheckEngine(const OperatorDef& def) {
  for (const std::string& name : SplitBackends(def.backends()))
    if (name != kReferenceBackend) OpRegistry::Global().CheckBackend(name);
}

OPKIT_INLINE std::vector<const Kernel*> KernelOrder(const OperatorDef& def, bool by_rank) {
  const OpRegistry& registry = OpRegistry::Global();
  BackendPreference asked = BackendOrder(def);
  // The plain kernel's rank decides its place.
  if (by_rank && !def.requires_backends()) asked.pop_back();
  // Orders by the position among the requested backends. All other kernels come after these, by
  // rank if `by_rank`.
  auto place = [&](const Kernel* kernel) {
    int64_t at = 0;
    for (const std::string& name : asked) {
      if (name == kernel->backend) return at << 32;
      ++at;
    }
    return (at << 32) - (by_rank ? registry.BackendRank(kernel->backend, kernel->origin) : 0);
  };
  const BackendPreference& allowed = AllowedBackends();
  std::string refused;  // backends that OPKIT_BACKENDS excludes
  std::vector<const Kernel*> order;
  for (const Kernel* kernel : registry.FindKernels(def.type(), def.device().type)) {
    if (def.requires_backends() && !Contains(asked, kernel->backend)) continue;
    if (!allowed.empty() && !Contains(allowed, kernel->backend)) {
      refused += StrCat(refused.empty() ? "" : ", ", kernel->backend);
      continue;
    }
    order.push_back(kernel);
    for (size_t i = order.size() - 1; i > 0 && place(order[i]) < place(order[i - 1]); --i)
      std::swap(order[i], order[i - 1]);
  }
  if (order.empty() && def.requires_backends()) {
    CheckBackends(def);
    if (!refused.empty())
      Throw(ErrorCode::kNotFound, "operator ", def, " requires a kernel of backend ",
            def.backends(), " on ", def.device(),
            ", by itself or by a selection; the environment's OPKIT_BACKENDS=",
            std::getenv("OPKIT_BACKENDS"), " leaves out ", refused);
    Throw(ErrorCode::kNotFound, "operator ", def, " requires a kernel of backend ", def.backends(),
          " on ", def.device(), ", which has none for it");
  }
  if (order.empty() && !refused.empty()) ThrowNoneAllowed(def, refused);
  return order;
}
OPKIT_INLINE void ThrowNoneAllowed(const OperatorDef& def, const std::string& backends) {
  std::string unknown;
  for (const std::string& name : AllowedBackends())
    if (std::string why = OpRegistry::Global().WhyNoBackend(name); !why.empty())
      unknown += "; " + why;
  Throw(ErrorCode::kNotFound, "operator ", def, " has kernels of the backends ", backends, " on ",
        def.device(), ", and the environment's OPKIT_BACKENDS=", std::getenv("OPKIT_BACKENDS"),
        " allows none of them", unknown);
}

OPKIT_INLINE void ThrowNoKernel(const OperatorDef& def, const std::string& refused) {
  if (!refused.empty())
    Throw(ErrorCode::kUnsupported, "no kernel of operator ", def, " on ", def.device(),
          " accepts this node:", refused);
  std::string others;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    others += StrCat(others.empty() ? "" : ", ", kernel->device, " (", kernel->backend, ", ",
                     kernel->Place(), ")");
  Throw(ErrorCode::kNotFound, "operator ", def, " has no kernel for ", def.device(), "; it has ",
        others.empty() ? "none at all" : "kernels for " + others);
}

OPKIT_INLINE std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def,
                                                const KernelConfig* config) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (int out = 0; uint64_t & mask : masks) {
    for (int in = 0; in < static_cast<int>(def.inputs().size()) && in < 64; ++in)
      if (config ? schema.MustInplace(in, out) : schema.CanInplace(in, out))
        mask |= uint64_t{1} << in;
    ++out;
  }
  if (config)
    for (const auto& [in, out] : config->inplace)
      if (in < 64) masks[Index(out)] |= uint64_t{1} << in;
  return masks;
}

OPKIT_INLINE uint64_t MutatedInputs(const OpSchema& schema, const OperatorDef& def) {
  uint64_t mutated = 0;
  for (const int input : schema.MutatedInputs(def))
    if (input >= 0 && input < 64) mutated |= uint64_t{1} << input;
  for (int i = 0; i < 64 && i < static_cast<int>(def.inputs().size()); ++i)
    for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
      if (schema.MustInplace(i, o)) mutated |= uint64_t{1} << i;
  return mutated;
}
OPKIT_INLINE void CheckNode(const OpSchema& schema, const OperatorDef& def) {
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", def);
}
OPKIT_INLINE void CheckIsFor(const Kernel& kernel, const OperatorDef& def) {
  if (kernel.op != def.type() || kernel.device != def.device().type)
    Throw(ErrorCode::kInvalidArgument, "the kernel given, of ", kernel.op, " for ", kernel.device,
          " at ", kernel.Place(), ", cannot run ", def, " on ", def.device());
}
OPKIT_INLINE void RethrowFromConstructor(const Kernel& kernel, const OperatorDef& def) {
  RethrowInContext(
      StrCat("in the constructor of operator ", def, ", registered at ", kernel.Place()));
}

// Refuses an undeclared argument; the function behind ArgumentCheck.
inline void CheckDeclares(const OpSchema& schema, const std::string& type, std::string_view name) {
  if (schema.name() != type || schema.TakesArgument(name)) return;
  Throw(ErrorCode::kInvalidArgument, "operator ", type, " reads the argument '", name,
        "', which its schema does not declare", schema.SuggestArgument(name),
        "; declare it with Arg, or say AllowUncheckedAttributes() in the schema");
}

OPKIT_INLINE SpanWork ComputeWork(const RunCost& run, const OperatorDef& def,
                                  const std::vector<TensorInfo>& inputs,
                                  const std::vector<TensorInfo>& outputs) {
  std::string shapes;
  for (const TensorInfo& input : inputs)
    shapes += StrCat(&input == inputs.data() ? "" : ", ",
                     input.dtype == DType::kUndefined ? "-" : ToString(input));
  uint32_t shapes_name = InternNameIfRoom(shapes);
  if (shapes_name == 0) shapes_name = InternName("(other shapes)");
  const OpCost cost = run.schema->Cost(def, inputs, outputs);
  return {shapes_name, cost.flops, cost.bytes_read + cost.bytes_written, InternName(*run.backend)};
}

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                                      const OperatorDef& def, Workspace* ws,
                                                      const KernelConfig* config) {
  try {
    const ScopedValue checked_arguments(t_argument_check, {&schema, &CheckDeclares});
    const MakeTyped make_typed =
        kernel.make_typed ? kernel.make_typed : &MakeTypedOperator<CPUContext>;
    std::unique_ptr<OperatorBase> op =
        kernel.typed ? make_typed(*kernel.typed, def, ws) : kernel.create(def, ws, config);
    if (!op) return op;
    if (config && !op->config()) op->SetConfig(*config);
    op->SetRegistration(kernel.file, kernel.line, {&schema, &kernel.backend, &ComputeWork});
    op->SetInplaceMasks(InplaceMasks(schema, def, config));
    op->SetMutatedInputs(MutatedInputs(schema, def));
    return op;
  } catch (...) {
    RethrowFromConstructor(kernel, def);
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
    for (const std::string& name : created_) ws_->RemoveBlob(name);
  }
  void Keep() { created_.clear(); }

 private:
  Workspace* ws_;
  std::vector<std::string> created_;
};

OPKIT_INLINE std::vector<TensorInfo> TypesIn(const Workspace& ws,
                                             const std::vector<std::string>& names) {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) {
    const Tensor* tensor = !name.empty() && ws.HasTensor(name) ? ws.GetTensor(name) : nullptr;
    infos.push_back(tensor && tensor->initialized() ? TensorInfo::Of(*tensor) : TensorInfo());
  }
  return infos;
}

OPKIT_INLINE void CheckConfig(const Kernel& kernel, const OperatorDef& def,
                              const KernelConfig& config) {
  auto wrong = [&](const std::string& what) {
    Throw(ErrorCode::kInvalidArgument, "the configuration that the kernel of ", kernel.op, " at ",
          kernel.Place(), " proposes for ", def, " ", what);
  };
  const size_t inputs = def.inputs().size(), outputs = def.outputs().size();
  auto check_layouts = [&](size_t found, size_t expected, const char* values) {
    if (found != 0 && found != expected)
      wrong(StrCat("has layouts for ", found, " ", values, ", expected none or ", expected));
  };
  check_layouts(config.input_layouts.size(), inputs, "inputs");
  check_layouts(config.output_layouts.size(), outputs, "outputs");
  for (const auto& [in, out] : config.inplace)
    if (in < 0 || out < 0 || Index(in) >= inputs || Index(out) >= outputs)
      wrong(StrCat("pairs input ", in, " with output ", out, " in place, but the node has ", inputs,
                   " inputs and ", outputs, " outputs"));
  if (!__builtin_isfinite(config.cost_ns)) wrong(StrCat("costs ", config.cost_ns, " ns"));
  if (config.scratch_bytes < 0) wrong(StrCat("needs ", config.scratch_bytes, " bytes of scratch"));
  for (const char c : config.variant)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      wrong("has a variant whose name contains a control character");
}

// Makes the operator of the given kernel, or of the first kernel that accepts the node.
OPKIT_IMAGE_LOCAL inline std::unique_ptr<OperatorBase> CreateBy(const OpSchema& schema,
                                                                const OperatorDef& def,
                                                                Workspace* ws,
                                                                const CreateOptions& options) {
  if (const Kernel* kernel = options.kernel) {
    CheckIsFor(*kernel, def);
    if (options.config) CheckConfig(*kernel, def, *options.config);
    if (auto op = CreateWith(*kernel, schema, def, ws, options.config)) return op;
    throw UnsupportedOperatorFeature(
        StrCat("the creator of ", kernel->op, " at ", kernel->Place(), " returned null"));
  }
  std::string refused;
  for (const Kernel* kernel : KernelOrder(def)) {
    std::string why = OpRegistry::Global().WhyUnavailable(*kernel);
    if (why.empty() && kernel->proposes_layouts && !options.converts)
      why = g_why_not_standard(*kernel, schema, def, *ws);
    if (!why.empty()) {
      refused += StrCat("\n  backend ", kernel->backend, ": ", why);
      continue;
    }
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

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                          const CreateOptions& options) {
  const detail::RegistryUse use;
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (options.config && !options.kernel)
      Throw(ErrorCode::kInvalidArgument, "CreateOperator of ", def,
            " was given a configuration without the kernel that proposed it");
    detail::CheckNode(schema, def);
    detail::OutputBlobGuard guard(def, ws);
    auto op = detail::CreateBy(schema, def, ws, options);
    op->set_net_position(options.net_position);
    guard.Keep();
    return op;
  } catch (...) {
    if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
    throw;
  }
}
OPKIT_INLINE std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                          int net_position) {
  return CreateOperator(def, ws, {.net_position = net_position});
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_
