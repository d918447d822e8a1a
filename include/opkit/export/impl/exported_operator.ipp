// The definitions of exported_operator.hpp.
#ifndef OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_
#define OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_

#include <mutex>

#include "opkit/base/suggest.hpp"
#include "opkit/export/exported_operator.hpp"
#include "opkit/export/gradient_operator.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Fixes the numbers of inputs and outputs that the record declares, if parseAttrs does not
// contradict: a host wants to know them without a node.
inline void FixArity(FunctionOpRecord& record, OpSchema& schema) {
  try {
    const auto [inputs, outputs] = FunctionArity(record, Arguments());
    if (inputs > 0 && Index(inputs) == record.inputs.size()) schema.NumInputs(inputs);
    if (outputs > 0 && Index(outputs) == record.outputs.size()) schema.NumOutputs(outputs);
  } catch (const Error&) {  // an attribute decides the numbers
  }
}

// Registers a complete record. Its faults are reported by the first lookup of the operator.
inline void RegisterRecord(const FunctionRecord& record) {
  FunctionOpHost host(record);
  host.Begin(/*is_complete=*/true);
  FixArity(*record, *host.schema());
  const auto report = [&](const std::string& problem) {
    OpRegistry::Global().AddProblem(record->name, problem);
  };
  if (!record->problem.empty()) report(record->problem);
  try {
    const bool has_gradient = !record->Has(OPKIT_OP_NO_GRADIENT);
    for (FunctionDevice& device : record->devices) {
      static_cast<void>(FunctionOpHost::DeviceName(device.name.c_str(), "setForward"));
      if (device.forward || device.create_state) host.Add(device, FunctionPass::kForward);
      const bool state_differentiates = device.create_state && !record->Has(OPKIT_OP_SUBGRAPH);
      if (has_gradient && (device.backward || state_differentiates))
        host.Add(device, FunctionPass::kBackward);
    }
    if (!has_gradient) host.NoGradient();
  } catch (const Error& error) {
    report(StrCat("REGISTER_OP(", record->name, ") at ", record->file, ":", record->line, ": ",
                  error.message()));
  }
}

OPKIT_INLINE void RegisterLibraryOperators() {
  static std::mutex mutex;
  static size_t registered = 0;
  const std::lock_guard lock(mutex);
  const std::vector<FunctionRecord>& records = LibraryContents::Global().records;
  while (registered < records.size()) RegisterRecord(records[registered++]);
}

OPKIT_INLINE const OpSchema& ExportedOperator::FindSchema() const {
  RegisterLibraryOperators();
  const OpRegistry& registry = OpRegistry::Global();
  const char* const name = gradient_of_ ? gradient_of_ : name_;
  if (!registry.FindSchema(name) && registry.KernelsOf(name).empty())
    Throw(ErrorCode::kNotFound, "operator '", name,
          "' is exported, but this shared object registers no operator of that name",
          SuggestName(name, RegisteredOperators()));
  const OpSchema& own = registry.GetSchema(name);
  const OpSchema& schema = gradient_of_ ? GradientOperatorSchema(own) : own;
  // Release: a thread that reads the pointer sees the schema, which is complete after static
  // initialisation.
  schema_.store(&schema, std::memory_order_release);
  return schema;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_
