// KernelCheck: runs one kernel through all checks: of memory, inference, results and gradients.
#ifndef OPKIT_OP_CHECK_IMPL_KERNEL_CHECK_IPP_
#define OPKIT_OP_CHECK_IMPL_KERNEL_CHECK_IPP_

#include "opkit/op/check/impl/results_check.ipp"
#include "opkit/op/gradient/gradient_check.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Runs a kernel on guarded memory, with different bytes in the memory that the kernel must not
// read. No run may write or read outside its tensors, and results must be repeatable.
class MemoryCheck {
 public:
  explicit MemoryCheck(CheckedKernel& kernel) : kernel_(kernel), target_(kernel.target()) {}

  // Returns the result of the first run; kOk also if the run had a finding. `error` has the text of
  // a failure.
  CheckedRun Run() {
    CheckedNode node = kernel_.Node();
    // The first run is asynchronous if possible, because only an asynchronous run has a deadline.
    const RunMode mode = kernel_.is_asynchronous() ? RunMode::kAsync : RunMode::kRun;
    const CheckedRun result = kernel_.Run(
        mode == RunMode::kAsync ? "run by RunAsync" : "run by Run", [&] { return node.Run(mode); });
    error_ = node.error();
    if (result == CheckedRun::kStuck)
      kernel_.Find("stuck", StrCat("nothing completes its event, which is still SCHEDULED ",
                                   target_.options.run.deadline_ms, " ms after RunAsync"));
    if (result != CheckedRun::kOk) return result;
    for (const std::string& sentence : node.Damage()) kernel_.Find("outside", sentence);
    for (size_t i : node.ChangedInputs(kernel_.tested().inputs))
      if (!kernel_.MayChange(i))
        kernel_.Find("input", StrCat("it changes ", kernel_.InputName(i),
                                     ", which is not one of its outputs"));
    outputs_ = node.Outputs();
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (!target_.def.outputs()[o].empty() && !outputs_[o].initialized())
        kernel_.Find("unset", StrCat("it never sets ", kernel_.OutputName(o)));
    if (!kernel_.IsBroken() && kernel_.IsDeterministic()) RunAgain();
    return CheckedRun::kOk;
  }
  const std::string& error() const { return error_; }
  std::vector<Tensor> TakeOutputs() { return std::move(outputs_); }

 private:
  void RunAgain() {
    CheckedNode again = kernel_.Node();
    if (!kernel_.Expect(again, outputs_, "random", "run by a second operator of the same node"))
      return;
    CheckedNode other = kernel_.Node(CheckedKernel::kOtherFill);
    if (kernel_.Run(other) == CheckedRun::kOk) {
      const std::vector<Tensor> filled = other.Outputs();
      for (size_t o = 0; o < outputs_.size(); ++o) CompareFills(o, outputs_[o], filled[o]);
    }
    CheckedNode fenced = kernel_.Node(CheckedKernel::kOtherFence);
    if (!kernel_.IsBroken() && kernel_.Run(fenced) == CheckedRun::kOk)
      kernel_.Compare(fenced.Outputs(), outputs_, "beyond",
                      "it reads outside its tensors: with other bytes around them ");
  }
  // Compares an output of two runs whose new memory held different bytes.
  void CompareFills(size_t o, const Tensor& found, const Tensor& other) {
    const std::string how = Difference(other, found, 0);
    if (how.empty()) return;
    const std::string name = kernel_.OutputName(o);
    int64_t unwritten = 0, first = -1;
    for (int64_t i = 0; other.nbytes() == found.nbytes() && i < found.numel(); ++i)
      if (IsFilled(found, i, CheckedKernel::kPattern.fill) &&
          IsFilled(other, i, CheckedKernel::kOtherFill.fill) && unwritten++ == 0)
        first = i;
    if (unwritten == 0)
      return kernel_.Find("garbage",
                          StrCat("it reads memory that was never written (the output before "
                                 "it is written, or scratch): with other bytes there ",
                                 name, ": ", how));
    kernel_.Find(
        "garbage",
        StrCat("it leaves ", unwritten, " of ", found.numel(), " elements of ", name, " unwritten",
               found.rank() == 0 ? ", a scalar by its inferred shape: does inference say it?"
                                 : StrCat(", first ", PositionOf(found.shape(), first))));
  }
  // True if all bytes of element i have this value; for a packed dtype, the byte that it is in.
  static bool IsFilled(const Tensor& tensor, int64_t i, uint8_t byte) {
    const DType dtype = tensor.dtype();
    if (IsPacked(dtype))
      return static_cast<const uint8_t*>(tensor.raw_data())[i * BitSize(dtype) / 8] == byte;
    const int64_t item = ItemSize(dtype);
    const auto* bytes = static_cast<const uint8_t*>(tensor.raw_data()) + i * item;
    return std::all_of(bytes, bytes + item, [&](uint8_t found) { return found == byte; });
  }

  CheckedKernel& kernel_;
  const CheckTarget& target_;
  std::vector<Tensor> outputs_;
  std::string error_;
};

// The shapes and data of the inputs, symbols for their extents, or unknown shapes.
enum class Known { kAll, kSymbols, kNothing };
inline std::vector<TensorInfo> KnownInputs(const std::vector<Tensor>& inputs, Known known) {
  std::vector<TensorInfo> out;
  for (const Tensor& input : inputs) {
    TensorInfo info = known == Known::kAll ? TensorInfo::OfConstant(input) : TensorInfo::Of(input);
    if (known == Known::kNothing) info.shape = {};
    for (int axis = 0; known == Known::kSymbols && axis < input.rank(); ++axis)
      info.shape[axis] = Sym(StrCat("N", out.size(), "_", axis));
    out.push_back(std::move(info));
  }
  return out;
}
// Compares the inferred dtypes and shapes with those that the kernel wrote. Infers from the current
// inputs, and also from less information, as inference in graphs does.
inline void CheckInference(CheckedKernel& kernel, const std::vector<Tensor>& outputs) {
  const OpSchema& schema = kernel.target().schema;
  const OperatorDef& def = kernel.target().def;
  if (!schema.has_inference() && !schema.limits_dtypes()) return;
  kernel.Begin("in its inference");
  for (const Known known : {Known::kAll, Known::kSymbols, Known::kNothing}) {
    std::vector<TensorInfo> inferred;
    try {
      const std::vector<TensorInfo> inputs = KnownInputs(kernel.tested().inputs, known);
      inferred = schema.InferOutputs(def, inputs);
      if (known == Known::kAll) static_cast<void>(schema.Cost(def, inputs, inferred));
    } catch (...) {
      const char* what = known == Known::kAll
                             ? "inference or cost fails on inputs that the kernel runs: "
                         : known == Known::kSymbols ? "inference fails on symbolic extents: "
                                                    : "inference fails on shapes of unknown rank: ";
      return kernel.Find("inference", StrCat(what, CurrentError().message()));
    }
    for (size_t o = 0; o < outputs.size() && o < inferred.size(); ++o) {
      const bool dtype_differs =
          inferred[o].dtype != DType::kUndefined && inferred[o].dtype != outputs[o].dtype();
      if (!dtype_differs && SymbolicShape::Merge(inferred[o].shape, outputs[o].shape())) continue;
      kernel.Find(StrCat("shape ", o),
                  StrCat(kernel.OutputName(o), ": inference says ", inferred[o],
                         ", the kernel wrote ", outputs[o].dtype(), ToString(outputs[o].shape())));
    }
  }
}

// Runs the configurations that the kernel proposes after the first one. Their outputs must be near
// to those of the first. Configurations with equal layouts need different names.
class ConfigsCheck {
 public:
  ConfigsCheck(CheckedKernel& kernel, const std::vector<Tensor>& outputs)
      : kernel_(kernel), outputs_(outputs) {}

  void Run() {
    const CheckTarget& target = kernel_.target();
    OperatorDef def = target.def;
    def.Device(kernel_.kernel().device, def.device().index);
    const std::vector<KernelConfig> all =
        ProposalsFor(kernel_.kernel(), target.schema, def, kernel_.tested().inputs);
    for (size_t i = 1; i < all.size(); ++i) {
      for (size_t before = 0; before < i; ++before)
        if (IsSameConfig(all[before], all[i]))
          kernel_.Find("variants",
                       StrCat("its configurations ", before, " and ", i,
                              " have the same layouts and the same variant '", all[i].variant,
                              "'; KernelConfig::variant tells them apart"));
      if (UnmetLayout(def, all[i]).empty()) RunIn(i, all[i]);
    }
  }

 private:
  void RunIn(size_t number, const KernelConfig& config) {
    const std::string in = StrCat("in configuration ", number,
                                  config.variant.empty() ? "" : ", " + config.variant + ",");
    const std::string problem = StrCat("configuration ", number, " ", config.variant);
    CheckedNode node = kernel_.Node();
    node.SetConfig(config);
    const CheckedRun result = kernel_.Run("run " + in, [&] { return node.Run(); });
    if (result == CheckedRun::kRefused)
      kernel_.Find(problem, StrCat(in, " it fails: ", node.error()));
    if (result != CheckedRun::kOk) return;
    for (const std::string& sentence : node.Damage())
      kernel_.Find(problem, StrCat(in, " ", sentence));
    kernel_.Compare(node.Outputs(), outputs_, problem, in + " it gives another result, ",
                    /*tolerant=*/true);
  }

  CheckedKernel& kernel_;
  const std::vector<Tensor>& outputs_;
};

// Runs one kernel through all checks, on the cases of one dtype.
class KernelCheck {
 public:
  KernelCheck(CheckedKernel& kernel, DType dtype)
      : kernel_(kernel), dtype_(dtype), target_(kernel.target()) {}

  void Run(const std::vector<CheckCase>& cases) {
    for (const CheckCase& one : cases) {
      if (kernel_.is_stuck()) break;
      kernel_.SetCase(&one);
      RunOn(one);
    }
    kernel_.SetCase(nullptr);
    FindRefusals();
  }

 private:
  void RunOn(const CheckCase& one) {
    auto result = CheckedRun::kUnsupported;
    std::string error = WhyDeclined(one);
    MemoryCheck memory(kernel_);
    if (error.empty()) {
      result = memory.Run();
      error = memory.error();
    }
    if (result == CheckedRun::kUnsupported) {
      unsupported_ = true;
      kernel_.Note(StrCat("kernel ", kernel_.name(), " on ", one.Describe(),
                          ", which it does not support: ", error));
    }
    if (result == CheckedRun::kRefused) Refuse(one, error);
    if (result != CheckedRun::kOk) return;
    const std::vector<Tensor> outputs = memory.TakeOutputs();
    if (!kernel_.IsBroken()) CheckInference(kernel_, outputs);
    if (!kernel_.IsBroken() && kernel_.IsDeterministic()) {
      ResultsCheck results(kernel_, outputs);
      results.Run(base_, base_outputs_);
      if (!base_) results.RunOnThreads(dtype_);
      if (!kernel_.IsBroken() && !kernel_.is_stuck()) ConfigsCheck(kernel_, outputs).Run();
    }
    if (base_) return;
    base_ = &one;
    base_outputs_ = outputs;
    if (!kernel_.IsBroken() && !kernel_.Found("state") && !kernel_.is_stuck())
      CheckGradients(one.inputs);
  }
  // Returns the reason why the kernel declines the node on these inputs; empty if it accepts the
  // node or makes no proposals.
  std::string WhyDeclined(const CheckCase& one) {
    try {
      static_cast<void>(FirstProposal(kernel_.kernel(), target_.schema, target_.def, one.inputs));
      return {};
    } catch (const UnsupportedOperatorFeature& error) {
      return error.message();
    } catch (...) {
      const std::string error = StrCat("its proposal fails: ", CurrentError().message());
      kernel_.Find("proposal", error);
      return error;
    }
  }
  void Refuse(const CheckCase& one, const std::string& error) {
    if (refusal_.empty()) refusal_ = error;
    if (refused_ || (one.guessed && !InferenceAccepts(target_.schema, target_.def, one.inputs)))
      return;
    refused_ = &one;
    refusal_ = error;
  }
  void CheckGradients(const std::vector<Tensor>& inputs) {
    if (!target_.options.compare.gradient || kernel_.reference()) return;
    if (!HasGradient(target_.schema.name())) {
      if (!GradientRegistry::Global().Find(target_.schema.name()))
        kernel_.Note("its gradient, none is registered");
      return;
    }
    if (!kernel_.IsDeterministic())
      return kernel_.Note("its gradient, because two runs may differ: CheckGradient does");
    kernel_.Begin("in the check of its gradient");
    try {
      OperatorDef def = target_.def;
      def.Device(kernel_.kernel().device).Backends(kernel_.kernel().backend);
      const GradientCheckResult result =
          CheckGradient(def, inputs, {.seed = target_.options.seed, .max_elements = 100});
      for (const std::string& finding : result.findings)
        kernel_.Find("gradient " + finding.substr(0, finding.find('\'')), finding);
      for (const std::string& note : result.notes) kernel_.Note(note);
    } catch (const Error& error) {
      kernel_.Find("gradient", StrCat("its gradient cannot be computed: ", error.message()));
    }
  }
  // Reports refused cases that the kernel should accept.
  void FindRefusals() {
    const std::string problem = StrCat("refused ", dtype_);
    if (!target_.value.empty() && !base_ && !refusal_.empty()) {
      kernel_.Note(StrCat("kernel ", kernel_.name(), " with ", target_.value, " (", dtype_,
                          "), which refuses the inputs that the others take: ", refusal_));
    } else if (refused_) {
      kernel_.SetCase(refused_);
      kernel_.Find(problem,
                   StrCat(!refused_->guessed ? "it refuses its test inputs: "
                          : base_ || !IsClaimed()
                              ? "it refuses inputs that its inference accepts: "
                              : StrCat("its schema claims ", dtype_, ", but it refuses that: "),
                          refusal_));
      kernel_.SetCase(nullptr);
    } else if (!base_ && !unsupported_ && !kernel_.is_stuck()) {
      kernel_.Find(
          problem,
          StrCat("kernel ", kernel_.name(), " refuses all inputs that were guessed (", dtype_,
                 "), the first with: ", refusal_,
                 "; give CheckOperator inputs, CheckOptions::dtypes or input_shapes, or the schema "
                 "TestInputs"));
    }
  }
  bool IsClaimed() const {
    return std::ranges::any_of(target_.schema.inputs(), [&](const ValueSchema& input) {
      return std::ranges::count(input.dtypes, dtype_) > 0;
    });
  }

  CheckedKernel& kernel_;
  const DType dtype_;
  const CheckTarget& target_;
  const CheckCase* base_ = nullptr;  // the first case that ran
  std::vector<Tensor> base_outputs_;
  const CheckCase* refused_ = nullptr;  // refused; inference accepts it, or it is not guessed
  std::string refusal_;                 // the first error
  bool unsupported_ = false;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_KERNEL_CHECK_IPP_
