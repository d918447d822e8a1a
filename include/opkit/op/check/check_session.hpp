// CheckSession: the kernel and inputs under test, fresh nodes to run them in, and the report that
// grows. The checkers of CheckOperator share one. For the definitions of op/check.hpp.
#ifndef OPKIT_OP_CHECK_CHECK_SESSION_HPP_
#define OPKIT_OP_CHECK_CHECK_SESSION_HPP_

#include <algorithm>

#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/check/check_node.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class CheckSession {
 public:
  CheckSession(const OpSchema& its_schema, OperatorDef node, const CheckOptions& wanted)
      : schema(its_schema), def(std::move(node)), options(Effective(wanted, its_schema)) {
    report.op = schema.name();
    if (wanted.deterministic && !options.deterministic)
      Note("what its outputs hold, because its schema says that two runs may differ");
  }

  // The bytes of unwritten memory in one run. A result that differs between two patterns was read
  // from there.
  struct Pattern {
    uint8_t fill, fence;
  };
  static constexpr Pattern kPattern{0xff, 0xa5}, kOtherFill{0x3c, 0xa5}, kOtherFence{0xff, 0x3c};

  static std::string KernelName(const Kernel& kernel) {
    return StrCat(kernel.device, "/", kernel.backend);
  }
  std::string InputName(size_t i) const { return NameOf("input", i, def.inputs()); }
  std::string OutputName(size_t o) const { return NameOf("output", o, def.outputs()); }
  void Note(std::string note) {
    if (!std::ranges::count(report.notes, note)) report.notes.push_back(std::move(note));
  }
  // `problem` identifies what is wrong whatever the inputs are, so that it is reported once.
  void Find(const std::string& problem, const std::string& sentence) {
    const std::string key = StrCat(kernel ? KernelName(*kernel) : "", " ", problem);
    if (std::ranges::count(found_, key)) return;
    found_.push_back(key);
    report.findings.push_back(
        tested ? StrCat(sentence, "  [", KernelName(*kernel), "; ", tested->Describe(), "]")
               : sentence);
  }
  bool Found(const std::string& problem) const {
    return std::ranges::count(found_, StrCat(KernelName(*kernel), " ", problem)) > 0;
  }
  // The node writes to input i, and says so.
  bool MayChange(size_t i) const {
    const int input = static_cast<int>(i);
    return std::ranges::count(options.mutated_inputs, input) > 0 ||
           std::ranges::count(schema.MutatedInputs(def), input) > 0;
  }
  double Tolerance(const Tensor& tensor) const {
    return options.tolerance >= 0 ? options.tolerance : DefaultTolerance(tensor.dtype());
  }
  // An operator of the kernel under test, fed with copies of the inputs in use or of others.
  CheckedNode Node(const OperatorDef& node, const std::vector<Tensor>& inputs,
                   Pattern pattern = kPattern) const {
    GuardAllocator::Global().SetPattern(pattern.fill, pattern.fence);
    return CheckedNode(schema, *kernel, node, inputs, options.deadline_ms);
  }
  CheckedNode Node(Pattern pattern = kPattern) const { return Node(def, tested->inputs, pattern); }
  CheckedRun Run(CheckedNode& node, RunMode mode = RunMode::kRun) {
    ++report.runs;
    const CheckedRun result = node.Run(mode);
    dead |= result == CheckedRun::kStuck;
    for (const std::string& name : node.arguments_read())
      if (!schema.TakesArgument(name))
        Find("argument " + name, StrCat("it reads the argument '", name,
                                        "', which no node can give, because its schema does not "
                                        "declare it",
                                        schema.SuggestArgument(name)));
    return result;
  }
  // The work goes on after it was issued, on other threads than this one.
  bool Asynchronous() const { return kernel->device != DeviceType::kCPU; }

  // The first output that differs, in words; empty when none does.
  std::string Differs(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      bool tolerant = false) const {
    for (size_t o = 0; o < found.size(); ++o) {
      const std::string how =
          Difference(found[o], expected[o], tolerant ? Tolerance(expected[o]) : 0);
      if (!how.empty()) return StrCat(OutputName(o), ": ", how);
    }
    return {};
  }
  // Runs `node` and reports a failure or other outputs than expected as `sentence`. False if so.
  bool Expect(CheckedNode& node, const std::vector<Tensor>& expected, const std::string& problem,
              const std::string& sentence, RunMode mode = RunMode::kRun, bool tolerant = false) {
    const CheckedRun result = Run(node, mode);
    if (result != CheckedRun::kOk) {
      Find(problem, StrCat(sentence, " it fails: ", node.error()));
      return false;
    }
    const std::string how = Differs(node.Outputs(), expected, tolerant);
    if (how.empty()) return true;
    Find(problem, StrCat(sentence, " it gives another result, ", how));
    return false;
  }

  // Problems that make every comparison meaningless.
  bool Broken() const {
    for (const char* problem : {"outside", "garbage", "beyond", "input", "random", "unset"})
      if (Found(problem)) return true;
    return false;
  }

  const OpSchema& schema;
  const OperatorDef def;
  const CheckOptions options;
  const Kernel* kernel = nullptr;
  const Kernel* reference = nullptr;  // null while it is checked itself
  const CheckCase* tested = nullptr;  // the inputs in use
  DType dtype = DType::kUndefined;
  bool dead = false;  // the kernel never completed
  CheckReport report;

 private:
  static CheckOptions Effective(CheckOptions options, const OpSchema& schema) {
    options.deterministic &= !schema.runs_may_differ();
    return options;
  }
  std::vector<std::string> found_;  // kernel and problem
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_SESSION_HPP_
