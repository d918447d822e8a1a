// CheckOperator: one call that tests an operator against its own claims, every kernel of it that
// the host can run. Its report is sentences that an operator's author can act on.
#ifndef OPKIT_OP_CHECK_HPP_
#define OPKIT_OP_CHECK_HPP_

#include "opkit/op/check/check_ways.hpp"
#include "opkit/op/gradient/gradient_check.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class OperatorChecker : public WaysChecker {
 public:
  using WaysChecker::WaysChecker;

  // `given`: inputs of the caller's; null: those of the schema or generated ones.
  CheckReport Check(const std::vector<Tensor>* given) {
    GuardScope guard;
    ThreadPool single(1);
    PoolScope scope(single);
    std::vector<const Kernel*> kernels;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema_.name())) {
      if (!IsHostAccessible(kernel->device)) {
        Note(StrCat("kernel ", KernelName(*kernel), ", whose memory the host does not reach"));
      } else if (kernel->device == DeviceType::kCPU && kernel->backend == kReferenceBackend) {
        kernels.insert(kernels.begin(), kernel);
      } else {
        kernels.push_back(kernel);
      }
    }
    if (kernels.empty()) Find("kernels", "it has no kernel that the host can run");
    if (!schema_.has_inference()) Note("shapes and dtypes, because the schema infers none");
    for (const Kernel* kernel : kernels) {
      kernel_ = kernel;
      reference_ = kernel == kernels[0] ? nullptr : kernels[0];
      dead_ = false;
      if (given) {
        std::vector<CheckCase> one(1);
        for (const Tensor& input : *given) one[0].inputs.push_back(CopyOf(input));
        CheckCases(one);
        continue;
      }
      for (DType dtype : ClaimedDTypes(schema_, options_)) {
        dtype_ = dtype;
        CheckCases(MakeCases(schema_, def_, dtype, options_));
      }
    }
    return std::move(report_);
  }

 private:
  void CheckCases(const std::vector<CheckCase>& cases) {
    const CheckCase* base = nullptr;  // the first that runs
    std::vector<Tensor> base_outputs;
    const CheckCase* refused = nullptr;  // the first that should run, by inference or by its origin
    bool unsupported = false;
    std::string error, refusal;
    for (const CheckCase& one : cases) {
      if (dead_) break;
      case_ = &one;
      std::vector<Tensor> outputs;
      const Result result = CheckMemory(&outputs, &error);
      if (result == Result::kUnsupported) {
        unsupported = true;
        Note(StrCat("kernel ", KernelName(*kernel_), " on ", one.Describe(),
                    ", which it does not support: ", error));
      }
      if (result == Result::kRefused) {
        if (refusal.empty()) refusal = error;
        if (!refused && (!one.guessed || InferenceAccepts())) refused = &one, refusal = error;
      }
      if (result != Result::kOk) continue;
      const bool first = base == nullptr;
      if (!Broken()) CheckInference(outputs);
      if (!Broken() && options_.deterministic) {
        CheckOutputs(outputs, base, base_outputs);
        if (first) CheckThreads(outputs);
      }
      if (!first) continue;
      base = &one;
      base_outputs = std::move(outputs);
      if (!Broken() && options_.deterministic && !dead_) CheckGradients();
    }
    case_ = nullptr;
    if (refused) {
      case_ = refused;
      Find(StrCat("refused ", dtype_),
           StrCat(!refused->guessed ? "it refuses its test inputs: "
                  : base            ? "it refuses inputs that its inference accepts: "
                  : Claims(dtype_) ? StrCat("its schema claims ", dtype_, ", but it refuses that: ")
                                   : "it refuses inputs that its inference accepts: ",
                  refusal));
      case_ = nullptr;
    } else if (!base && !unsupported && !dead_) {
      Find(StrCat("refused ", dtype_),
           StrCat("kernel ", KernelName(*kernel_), " refuses all inputs that were guessed (",
                  dtype_, "), the first with: ", refusal,
                  "; give CheckOperator inputs, CheckOptions::shapes, or the schema TestInputs"));
    }
  }
  bool Claims(DType dtype) const {
    for (const ValueSchema& input : schema_.inputs())
      for (DType one : input.dtypes)
        if (one == dtype) return true;
    return false;
  }

  void CheckGradients() {
    if (!options_.gradient || reference_) return;
    if (!HasGradient(schema_.name())) {
      if (!GradientRegistry::Global().Find(schema_.name()))
        Note("its gradient, none is registered");
      return;
    }
    try {
      OperatorDef def = def_;
      def.Device(kernel_->device).Engine(kernel_->backend);
      GradientCheckOptions options;
      options.seed = options_.seed;
      options.max_elements = 100;
      for (const std::string& finding : CheckGradient(def, case_->inputs, options).findings)
        Find("gradient " + finding.substr(0, finding.find('\'')), finding);
    } catch (const Error& error) {
      Find("gradient", StrCat("its gradient cannot be computed: ", error.message()));
    }
  }
};

}  // namespace detail

// Tests every kernel of the operator that the host can run: outputs as inferred; nothing written or
// read outside its tensors, inputs left alone, every element written; the same again in a second
// run and by a new operator, in place where allowed, with shared memory, by RunAsync, on several
// threads, from a strided input (or that refused); every dtype its inputs claim; empty and odd
// shapes; as the reference kernel; the gradient, where there is one.
//
// Inputs come from the schema's TestInputs; without them all have one shape and values of both
// signs, and what both inference and the kernel refuse is left out. Stands in for the CPU's
// allocator meanwhile; one check at a time. Errors: kNotFound for an unknown operator,
// kInvalidArgument when no node can be made.
//
//   CheckReport report = CheckOperator("Axpy");
//   if (!report.ok()) puts(ToString(report).c_str());
inline CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {}) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  return detail::OperatorChecker(schema, detail::MakeCheckDef(schema, options), options)
      .Check(nullptr);
}
// The same for a node and inputs of the caller's: dense host tensors, a default-constructed one
// where the node leaves an input out. The device of the node does not matter.
inline CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                                 const CheckOptions& options = {}) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (inputs.size() != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "CheckOperator of ", ToString(def), " needs ",
          def.inputs().size(), " inputs, found ", inputs.size());
  return detail::OperatorChecker(schema, def, options).Check(&inputs);
}

}  // namespace opkit

#endif  // OPKIT_OP_CHECK_HPP_
