// CheckOperator's definitions: checks every kernel of the operator, with every value of its string
// attributes, in a child process.
#ifndef OPKIT_OP_IMPL_CHECK_IPP_
#define OPKIT_OP_IMPL_CHECK_IPP_

#include <deque>

#include "opkit/op/check.hpp"
#include "opkit/op/check/impl/kernel_check.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Checks all kernels of the operator. `given` are the caller's inputs; null for the schema's or
// generated inputs.
inline void CheckKernels(const CheckTarget& target, CheckLog& log,
                         const std::vector<Tensor>* given) {
  if (target.options.compare.deterministic && target.schema.runs_may_differ())
    log.Note("what its outputs hold, because its schema says that two runs may differ");
  GuardScope guard;
  ThreadPool single(1);
  PoolScope scope(single);
  std::vector<const Kernel*> kernels;  // the reference kernel first
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(target.schema.name())) {
    const bool is_reference =
        kernel->device == DeviceType::kCPU && kernel->backend == kReferenceBackend;
    if (IsHostAccessible(kernel->device))
      kernels.insert(is_reference ? kernels.begin() : kernels.end(), kernel);
    else
      log.Note(StrCat("kernel ", kernel->device, "/", kernel->backend,
                      ", whose memory the host does not reach"));
  }
  if (kernels.empty()) log.Find("it has no kernel that the host can run");
  if (!target.schema.has_inference()) log.Note("shapes and dtypes, because the schema infers none");
  if (std::ranges::all_of(kernels, [](auto* kernel) { return kernel->device == DeviceType::kCPU; }))
    log.Note("work on a stream, because no kernel is registered for cpu_stream");
  std::deque<CheckedKernel> checked;
  for (const Kernel* kernel : kernels) {
    CheckedKernel* reference = checked.empty() ? nullptr : &checked.front();
    CheckedKernel& tested = checked.emplace_back(target, *kernel, reference, log);
    if (given) {
      std::vector<CheckCase> one(1);
      for (const Tensor& input : *given) one[0].inputs.push_back(CopyOf(input));
      KernelCheck(tested, DType::kUndefined).Run(one);
      continue;
    }
    for (DType dtype : target.DTypes()) KernelCheck(tested, dtype).Run(target.Cases(dtype));
  }
}

// Checks the operator with every value of its string attributes, one at a time, except attributes
// that the caller gives.
inline void CheckValues(const OpSchema& schema, CheckOptions options, CheckLog& log,
                        bool lacks_threads) {
  // Attributes to check, each with the value checked first.
  std::vector<std::pair<const AttributeSchema*, std::string>> open;
  for (const AttributeSchema& attribute : schema.attributes()) {
    if (attribute.values.empty() || attribute.type != AttributeType::kString ||
        options.args.Has(attribute.name))
      continue;
    const bool has_default = attribute.default_value && !attribute.required;
    open.emplace_back(&attribute, has_default ? attribute.default_value->Get<std::string>()
                                              : attribute.values[0]);
    if (attribute.required) options.args.Set(attribute.name, attribute.values[0]);
  }
  CheckKernels({schema, MakeCheckDef(schema, options), options, lacks_threads}, log, nullptr);
  for (const auto& [attribute, first] : open)
    for (const std::string& value : attribute->values) {
      if (value == first) continue;
      CheckTarget target{schema, {}, options, lacks_threads, StrCat(attribute->name, "=", value)};
      target.options.args.Set(attribute->name, value);
      try {
        target.def = MakeCheckDef(schema, target.options);
      } catch (const Error& error) {
        log.Note(StrCat(target.value, ": ", error.message()));
        continue;
      }
      CheckKernels(target, log, nullptr);
    }
}

inline constexpr char kLacksThreads[] =
    "; threads that this program had started do not run in the child: where the operator waits for "
    "one of them, check it with CheckOptions::run.in_child = false";

// Runs `body` in a child process; a crash or hang of the child is a finding. Runs `body` in this
// process if the caller requests it, or if a thread of this process may have to complete the
// operator's runs.
inline CheckReport CheckInChild(const std::string& op, const CheckOptions& options,
                                FunctionRef<void(CheckLog& log, bool lacks_threads)> body) {
  const bool has_threads = CountOtherThreads() > 0;
  const auto run_checks = [&](const ChildReporter* parent) {
    CheckLog log(op, parent);
    body(log, parent && has_threads);
    return log.report();
  };
  if (!options.run.in_child) return run_checks(nullptr);
  constexpr char kNeedsTheParent[] = "parent";
  const ChildOutcome outcome = RunInChild(options.run.hang_seconds, [&](const auto& voice) {
    voice.Step("in its inference");
    try {
      voice.Answer(PackReport(run_checks(&voice)));
    } catch (const NeedsTheParent&) {
      voice.Answer(kNeedsTheParent);
    }
    return ChildEnd::kAtOnce;
  });
  if (outcome.answer == kNeedsTheParent) return run_checks(nullptr);
  CheckReport report = UnpackReport(outcome.answer);
  report.op = op;
  if (!outcome.failure.empty())
    report.findings.push_back(
        StrCat("operator ", op, " ", outcome.failure, ": ", outcome.how, ", ", outcome.step,
               outcome.failure == "hangs" && has_threads ? kLacksThreads : ""));
  return report;
}

}  // namespace detail

OPKIT_INLINE CheckReport CheckOperator(const std::string& op, const CheckOptions& options) {
  const detail::RegistryUse use;
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  return detail::CheckInChild(op, options, [&](detail::CheckLog& log, bool lacks_threads) {
    detail::CheckValues(schema, options, log, lacks_threads);
  });
}
OPKIT_INLINE CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                                       const CheckOptions& options) {
  const detail::RegistryUse use;
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (inputs.size() != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "CheckOperator of ", ToString(def), " needs ",
          def.inputs().size(), " inputs, found ", inputs.size());
  return detail::CheckInChild(def.type(), options, [&](detail::CheckLog& log, bool lacks_threads) {
    detail::CheckKernels({schema, def, options, lacks_threads}, log, &inputs);
  });
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_CHECK_IPP_
