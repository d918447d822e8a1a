// CheckedKernel: a kernel under test with its current inputs. The checks run it and report by it.
#ifndef OPKIT_OP_CHECK_IMPL_CHECKED_KERNEL_IPP_
#define OPKIT_OP_CHECK_IMPL_CHECKED_KERNEL_IPP_

#include "opkit/op/check/impl/check_log.ipp"
#include "opkit/op/check/impl/checked_node.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes operators of a kernel, runs them, and reports failures and wrong results with the kernel's
// name and the inputs.
class CheckedKernel {
 public:
  // The bytes that fill unwritten memory in one run. A result that differs between two patterns
  // depends on unwritten memory.
  struct Pattern {
    uint8_t fill, fence;
  };
  static constexpr Pattern kPattern{0xff, 0xa5}, kOtherFill{0x3c, 0xa5}, kOtherFence{0xff, 0x3c};

  // The arguments must outlive this object. `reference` is null for the reference kernel itself.
  CheckedKernel(const CheckTarget& target, const Kernel& kernel, CheckedKernel* reference,
                CheckLog& log)
      : target_(target), kernel_(kernel), reference_(reference), log_(log) {}

  const CheckTarget& target() const { return target_; }
  const Kernel& kernel() const { return kernel_; }
  CheckedKernel* reference() const { return reference_; }
  std::string name() const { return StrCat(kernel_.device, "/", kernel_.backend); }
  // True if work continues on other threads after it was issued.
  bool is_asynchronous() const { return kernel_.device != DeviceType::kCPU; }
  bool is_stuck() const { return is_stuck_; }  // a run never completed
  // Sets the inputs of the next runs; null for no inputs. `tested` must live until the next call.
  void SetCase(const CheckCase* tested) { tested_ = tested; }
  const CheckCase& tested() const { return *tested_; }
  std::string InputName(size_t i) const { return NameOf("input", i, target_.def.inputs()); }
  std::string OutputName(size_t o) const { return NameOf("output", o, target_.def.outputs()); }
  // True if input i may change, by the schema or the options.
  bool MayChange(size_t i) const {
    const int input = static_cast<int>(i);
    return std::ranges::count(target_.options.compare.mutated_inputs, input) > 0 ||
           std::ranges::count(target_.schema.MutatedInputs(target_.def), input) > 0;
  }
  // False if two runs may differ: no results are compared.
  bool IsDeterministic() const {
    return target_.options.compare.deterministic && !target_.schema.runs_may_differ();
  }

  void Note(const std::string& note) { log_.Note(note); }
  // Adds a finding. `problem` identifies the fault independent of the inputs, so that it is
  // reported once for the kernel.
  void Find(const std::string& problem, const std::string& sentence) {
    if (log_.AddKey(KeyOf(problem))) log_.Find(StrCat(sentence, HintOf(problem), Where()));
  }
  bool Found(const std::string& problem) const { return log_.HasKey(KeyOf(problem)); }
  // True if a problem was found that makes every comparison meaningless.
  bool IsBroken() const {
    for (const char* problem : {"outside", "garbage", "beyond", "input", "random", "unset"})
      if (Found(problem)) return true;
    return false;
  }
  // Announces the next step to the parent process.
  void Begin(const std::string& step) const {
    log_.Begin(StrCat(step, is_asynchronous() ? kCaptureHint : "", Where()));
  }

  // Makes an operator of the kernel, with copies of the current inputs or of other inputs.
  CheckedNode Node(const OperatorDef& def, const std::vector<Tensor>& inputs,
                   Pattern pattern = kPattern) const {
    GuardAllocator::Global().SetPattern(pattern.fill, pattern.fence);
    return CheckedNode(target_, kernel_, def, inputs);
  }
  CheckedNode Node(Pattern pattern = kPattern) const {
    return Node(target_.def, tested_->inputs, pattern);
  }
  CheckedRun Run(const std::string& step, FunctionRef<CheckedRun()> run) {
    Begin(step);
    log_.CountRun();
    const CheckedRun result = run();
    is_stuck_ |= result == CheckedRun::kStuck;
    if (is_stuck_ && target_.lacks_threads && !is_asynchronous()) throw NeedsTheParent();
    return result;
  }
  CheckedRun Run(CheckedNode& node) {
    return Run("run by Run", [&] { return node.Run(); });
  }
  // Describes the first output that differs; empty if all outputs are equal.
  std::string Differs(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      bool tolerant = false) const {
    const double given = target_.options.compare.tolerance;
    for (size_t o = 0; o < found.size(); ++o) {
      const double tolerance = !tolerant    ? 0
                               : given >= 0 ? given
                                            : DefaultTolerance(expected[o].dtype());
      const std::string how = Difference(found[o], expected[o], tolerance);
      if (!how.empty()) return StrCat(OutputName(o), ": ", how);
    }
    return {};
  }
  // If the outputs differ from `expected`, reports `sentence` with the difference and returns
  // false.
  bool Compare(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
               const std::string& problem, const std::string& sentence, bool tolerant = false) {
    const std::string how = Differs(found, expected, tolerant);
    if (!how.empty()) Find(problem, sentence + how);
    return how.empty();
  }
  // Runs `node`. If it fails, or its outputs differ from `expected`, reports this in a sentence
  // that begins with `sentence`, and returns false.
  bool Expect(CheckedNode& node, const std::vector<Tensor>& expected, const std::string& problem,
              const std::string& sentence, RunMode mode = RunMode::kRun, bool tolerant = false) {
    if (Run(sentence, [&] { return node.Run(mode); }) == CheckedRun::kOk)
      return Compare(node.Outputs(), expected, problem, sentence + " it gives another result, ",
                     tolerant);
    Find(problem, StrCat(sentence, " it fails: ", node.error()));
    return false;
  }

 private:
  static constexpr char kCaptureHint[] =
      "; is the body of ParallelFor or Launch a [&]? It runs when RunOnDevice has returned and its "
      "variables are gone: capture by value, [=]";

  std::string KeyOf(const std::string& problem) const { return StrCat(name(), " ", problem); }
  // Returns the kernel and inputs under test, and the attribute value that is not the default:
  // "  [cpu/reference; float32[2, 3]; mode=same]".
  std::string Where() const {
    const std::string& value = target_.value;
    if (!tested_) return value.empty() ? "" : StrCat("  [", value, "]");
    return StrCat("  [", name(), "; ", tested_->Describe(), value.empty() ? "" : "; " + value, "]");
  }
  // Returns the likely reason of a wrong result.
  std::string HintOf(const std::string& problem) {
    const auto is_one_of = [&](std::initializer_list<const char*> problems) {
      return std::ranges::count(problems, problem) > 0;
    };
    // Gives this hint once for each kernel, and only if the CPU's kernels have no findings.
    if (is_asynchronous() &&
        is_one_of({"outside", "garbage", "beyond", "random", "async", "state", "reference"}) &&
        !log_.HasKeyOf(StrCat(DeviceType::kCPU, "/")) && log_.AddKey(KeyOf("hint")))
      return kCaptureHint;
    if (is_one_of({"random", "state"}))
      return "; if it is meant to, its schema says Stateful() (stateful() of REGISTER_OP)";
    return {};
  }

  const CheckTarget& target_;
  const Kernel& kernel_;
  CheckedKernel* const reference_;
  CheckLog& log_;
  const CheckCase* tested_ = nullptr;
  bool is_stuck_ = false;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_CHECKED_KERNEL_IPP_
