// Describes the operators and backends of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_

#include <list>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/registration/own_names.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/gradient/gradient_hook.hpp"
#include "opkit/plugin/export/export_operators.hpp"
#include "opkit/plugin/export/host_memory.hpp"
#include "opkit/plugin/export/host_spans.hpp"
#include "opkit/plugin/export/impl/schema_functions.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Frees the registries when the library is unmapped, but not at the program's end.
struct OPKIT_IMAGE_LOCAL ExportedRegistries {
  ~ExportedRegistries() {
    if (g_export_threads.described) return;
    if (g_delete_gradients) g_delete_gradients();
    delete &OpRegistry::Global();
    if (g_delete_layout_registry) g_delete_layout_registry();
    if (g_delete_names) g_delete_names();
  }
};

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ReadKernels(const OpSchema& schema,
                                                     FunctionOpRecord& record) {
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema.name())) {
    if (!IsHostAccessible(kernel->device) && !FindNativeStreams(kernel->device) &&
        kernel->device < DeviceType::kFirstUserDevice)
      Throw(ErrorCode::kUnsupported, "operator ", schema.name(), " has a kernel for ",
            kernel->device,
            " that cannot issue work on its host's streams: include the header of the backend in "
            "the library (opkit/backends/<its name>/context.hpp), or call RegisterNativeStreams "
            "for a device of your own (at ",
            kernel->Place(), ")");
    FunctionDevice& device = record.devices.emplace_back();
    device.name = ToString(kernel->device);
    if (kernel->backend != kReferenceBackend) device.backend = kernel->backend;
    SchemaFunctions::FillIn(device.abi, *kernel);
  }
}
// Returns a record of a registered operator, like those of REGISTER_OP.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline FunctionRecord ReadSchema(const OpSchema& schema) {
  FunctionRecord record(new FunctionOpRecord);
  record->name = schema.name();
  record->doc = schema.doc();
  record->file = schema.file();
  record->line = schema.line();
  // OPKIT_OP_EFFECTS protects the node from hosts that do not know OPKIT_OP_KEEPS_STATE.
  const bool keeps = schema.is_stateful() && !schema.runs_may_differ();
  record->flags = OPKIT_OP_ALLOCATES_OUTPUTS |  // a class makes outputs that inference leaves open
                  (schema.is_stateful() ? OPKIT_OP_EFFECTS : 0) |
                  (keeps ? OPKIT_OP_KEEPS_STATE : 0) |
                  (schema.needs_subgraph() ? OPKIT_OP_SUBGRAPH : 0) |
                  (schema.unknown_args_allowed() ? OPKIT_OP_OPEN_ATTRS : OPKIT_OP_CLOSED_ATTRS);
  SchemaFunctions::FillIn(record->abi, schema);
  if (g_read_gradient)
    g_read_gradient(*record);
  else if (g_has_gradient && g_has_gradient(record->name))
    Throw(ErrorCode::kFailedPrecondition, "the gradient of operator ", record->name,
          " does not reach the program: include both opkit/op.hpp and opkit/graph.hpp in the unit "
          "that "
          "registers it");
  ReadKernels(schema, *record);
  // Adds only in-place pairs of the first inputs and outputs, because the schema's function must be
  // called for each possible pair.
  constexpr int kMost = 16;
  for (int i = 0; i < (std::min)(schema.max_inputs(), kMost); ++i)
    for (int o = 0; o < (std::min)(schema.max_outputs(), kMost); ++o)
      if (schema.CanInplace(i, o)) record->inplace.emplace_back(i, o);
  record->attributes = schema.attributes();
  record->inputs = schema.inputs();
  record->outputs = schema.outputs();
  return record;
}

// True if a record of REGISTER_OP has brought the operator, or its gradient, into the registry too
// (export/exported_operator.hpp).
OPKIT_COLD OPKIT_IMAGE_LOCAL inline bool IsFromRecord(const OpSchema& schema,
                                                      std::span<const FunctionRecord> records) {
  for (const FunctionRecord& record : records)
    if (schema.line() == record->line && std::string_view(schema.file()) == record->file &&
        (schema.name() == record->name || schema.name() == record->name + "_backward"))
      return true;
  return false;
}

// Describes a backend of the library's kernels to the host: its rank and availability.
struct OPKIT_IMAGE_LOCAL ExportedBackend : RefCounted {
  explicit ExportedBackend(std::string its_name) : name(std::move(its_name)) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.rank = OpRegistry::Global().BackendRank(name);
    if (OpRegistry::Global().HasAvailability(name))
      abi.available = &GuardBy<ExportedBackend, &ExportedBackend::Available>;
    abi.author = this;
  }
  OpStatus Available() const {
    Kernel kernel;
    kernel.backend = name;
    const std::string why = OpRegistry::Global().WhyUnavailable(kernel);
    return why.empty() ? OpStatus() : OpStatus::Failure(why);
  }
  const std::string name;
  opkit_backend abi{};
};
OPKIT_COLD OPKIT_IMAGE_LOCAL inline void AddBackends(const std::vector<FunctionRecord>& records,
                                                     LibraryContents& contents) {
  std::vector<std::string> names;
  for (const FunctionRecord& record : records)
    for (const FunctionDevice& device : record->devices)
      if (!device.backend.empty() && !Contains(names, device.backend)) {
        names.push_back(device.backend);
        AddExported<ExportedBackend>(contents, contents.backends, device.backend);
      }
}

OPKIT_COLD OPKIT_INLINE void AddRegisteredOperators(std::vector<FunctionRecord>& records) {
  if (IsProgramHost(g_host)) return;
  static const ExportedRegistries registries;
  HostMemory::Use();
  HostSpans::Use();
  if (const auto problems = CheckRegistrations(); !problems.empty())
    Throw(ErrorCode::kInvalidArgument, problems[0]);
  LibraryContents& contents = LibraryContents::Global();
  if (contents.finalize != &EndLibraryPool)
    g_export_threads.finalize = std::exchange(contents.finalize, &EndLibraryPool);
  const std::vector<FunctionRecord> own = records;
  for (const std::string& name : RegisteredOperators()) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(name);
    if (!schema.is_internal() && !IsFromRecord(schema, own)) records.push_back(ReadSchema(schema));
  }
  AddBackends(records, contents);
  g_export_threads.described = true;
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE void InvokeOnHost(std::string_view op, const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& outputs,
                                          const Arguments& args) {
  if (!detail::t_host_call)
    Throw(ErrorCode::kFailedPrecondition, "InvokeOnHost(\"", op,
          "\") is called in a thread that runs no operator of a library; a program's own operator "
          "calls Invoke");
  std::list<Dims> strides;
  const auto views = [&](const std::vector<Tensor>& tensors) {
    std::vector<OpTensor> all;
    for (const Tensor& tensor : tensors) {
      strides.push_back(tensor.strides());
      all.emplace_back(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(),
                       strides.back().data(), tensor.rank(), tensor.device());
    }
    return all;
  };
  OpResource(detail::t_host_call).invoke(op, views(inputs), views(outputs), args);
}

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
