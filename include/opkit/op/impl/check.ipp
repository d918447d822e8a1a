// CheckOperator: every kernel on every case, through each of the checkers.
#ifndef OPKIT_OP_IMPL_CHECK_IPP_
#define OPKIT_OP_IMPL_CHECK_IPP_

#include "opkit/op/check.hpp"
#include "opkit/op/check/check_inference.hpp"
#include "opkit/op/check/check_memory.hpp"
#include "opkit/op/check/check_ways.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class OperatorChecker {
 public:
  OperatorChecker(const OpSchema& schema, OperatorDef def, const CheckOptions& options)
      : session_(schema, std::move(def), options) {}

  // `given`: inputs of the caller's; null: those of the schema or generated ones.
  CheckReport Check(const std::vector<Tensor>* given) {
    GuardScope guard;
    ThreadPool single(1);
    PoolScope scope(single);
    std::vector<const Kernel*> kernels;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(session_.schema.name())) {
      if (!IsHostAccessible(kernel->device)) {
        session_.Note(StrCat("kernel ", session_.KernelName(*kernel),
                             ", whose memory the host does not reach"));
      } else if (kernel->device == DeviceType::kCPU && kernel->backend == kReferenceBackend) {
        kernels.insert(kernels.begin(), kernel);
      } else {
        kernels.push_back(kernel);
      }
    }
    if (kernels.empty()) session_.Find("kernels", "it has no kernel that the host can run");
    if (!session_.schema.has_inference())
      session_.Note("shapes and dtypes, because the schema infers none");
    for (const Kernel* kernel : kernels) {
      session_.kernel = kernel;
      session_.reference = kernel == kernels[0] ? nullptr : kernels[0];
      session_.dead = false;
      if (given) {
        std::vector<CheckCase> one(1);
        for (const Tensor& input : *given) one[0].inputs.push_back(CopyOf(input));
        CheckCases(one);
        continue;
      }
      for (DType dtype : ClaimedDTypes(session_.schema, session_.options)) {
        session_.dtype = dtype;
        CheckCases(MakeCases(session_.schema, session_.def, dtype, session_.options));
      }
    }
    return std::move(session_.report);
  }

 private:
  void CheckCases(const std::vector<CheckCase>& cases) {
    const CheckCase* base = nullptr;  // the first that runs
    std::vector<Tensor> base_outputs;
    const CheckCase* refused = nullptr;  // the first that should run, by inference or by its origin
    bool unsupported = false;
    std::string error, refusal;
    for (const CheckCase& one : cases) {
      if (session_.dead) break;
      session_.tested = &one;
      std::vector<Tensor> outputs;
      const auto result = memory_.Check(&outputs, &error);
      if (result == CheckedRun::kUnsupported) {
        unsupported = true;
        session_.Note(StrCat("kernel ", session_.KernelName(*session_.kernel), " on ",
                             one.Describe(), ", which it does not support: ", error));
      }
      if (result == CheckedRun::kRefused) {
        if (refusal.empty()) refusal = error;
        if (!refused && (!one.guessed || inference_.Accepts())) refused = &one, refusal = error;
      }
      if (result != CheckedRun::kOk) continue;
      const bool first = base == nullptr;
      if (!session_.Broken()) inference_.Check(outputs);
      if (!session_.Broken() && session_.options.deterministic) {
        ways_.Check(outputs, base, base_outputs);
        if (first) ways_.CheckThreads(outputs);
      }
      if (!first) continue;
      base = &one;
      base_outputs = std::move(outputs);
      if (!session_.Broken() && session_.options.deterministic && !session_.dead) CheckGradients();
    }
    session_.tested = nullptr;
    if (refused) {
      session_.tested = refused;
      session_.Find(
          StrCat("refused ", session_.dtype),
          StrCat(!refused->guessed ? "it refuses its test inputs: "
                 : base            ? "it refuses inputs that its inference accepts: "
                 : Claims(session_.dtype)
                     ? StrCat("its schema claims ", session_.dtype, ", but it refuses that: ")
                     : "it refuses inputs that its inference accepts: ",
                 refusal));
      session_.tested = nullptr;
    } else if (!base && !unsupported && !session_.dead) {
      session_.Find(
          StrCat("refused ", session_.dtype),
          StrCat("kernel ", session_.KernelName(*session_.kernel),
                 " refuses all inputs that were guessed (", session_.dtype,
                 "), the first with: ", refusal,
                 "; give CheckOperator inputs, CheckOptions::shapes, or the schema TestInputs"));
    }
  }
  bool Claims(DType dtype) const {
    for (const ValueSchema& input : session_.schema.inputs())
      if (std::ranges::count(input.dtypes, dtype)) return true;
    return false;
  }

  void CheckGradients() {
    if (!session_.options.gradient || session_.reference) return;
    if (!HasGradient(session_.schema.name())) {
      if (!GradientRegistry::Global().Find(session_.schema.name()))
        session_.Note("its gradient, none is registered");
      return;
    }
    try {
      OperatorDef def = session_.def;
      def.Device(session_.kernel->device).Engine(session_.kernel->backend);
      GradientCheckOptions options;
      options.seed = session_.options.seed;
      options.max_elements = 100;
      for (const std::string& finding :
           CheckGradient(def, session_.tested->inputs, options).findings)
        session_.Find("gradient " + finding.substr(0, finding.find('\'')), finding);
    } catch (const Error& error) {
      session_.Find("gradient", StrCat("its gradient cannot be computed: ", error.message()));
    }
  }

  CheckSession session_;
  MemoryChecker memory_{session_};
  InferenceChecker inference_{session_};
  WaysChecker ways_{session_};
};

}  // namespace detail

OPKIT_INLINE CheckReport CheckOperator(const std::string& op, const CheckOptions& options) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  return detail::OperatorChecker(schema, detail::MakeCheckDef(schema, options), options)
      .Check(nullptr);
}
OPKIT_INLINE CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                                       const CheckOptions& options) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (inputs.size() != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "CheckOperator of ", ToString(def), " needs ",
          def.inputs().size(), " inputs, found ", inputs.size());
  return detail::OperatorChecker(schema, def, options).Check(&inputs);
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_CHECK_IPP_
