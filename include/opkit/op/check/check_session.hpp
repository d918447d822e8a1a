// CheckSession: the kernel and inputs under test, fresh nodes to run them in, and the report that
// grows. What the parts of CheckOperator share.
#ifndef OPKIT_OP_CHECK_CHECK_SESSION_HPP_
#define OPKIT_OP_CHECK_CHECK_SESSION_HPP_

#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/check/check_node.hpp"

namespace opkit::inline OPKIT_ABI {

struct CheckReport {
  std::string op;
  std::vector<std::string>
      findings;                    // what is wrong; each once, with the first inputs that show it
  std::vector<std::string> notes;  // what could not be checked, and why
  int runs = 0;

  bool ok() const { return findings.empty(); }
  friend std::string ToString(const CheckReport& report) {
    std::string out =
        StrCat("operator ", report.op, ": ",
               report.ok() ? "nothing wrong" : StrCat(report.findings.size(), " wrong"), " in ",
               report.runs, " runs");
    for (const std::string& finding : report.findings) out += "\n  " + finding;
    for (const std::string& note : report.notes) out += "\n  (not checked: " + note + ")";
    return out;
  }
};

namespace detail {

class CheckSession {
 public:
  using Result = CheckedNode::Result;
  using Mode = CheckedNode::Mode;

  CheckSession(const OpSchema& schema, OperatorDef def, const CheckOptions& options)
      : schema_(schema), def_(std::move(def)), options_(Effective(options, schema)) {
    report_.op = schema.name();
    if (options.deterministic && !options_.deterministic)
      Note("what its outputs hold, because its schema says that two runs may differ");
  }

 private:
  static CheckOptions Effective(CheckOptions options, const OpSchema& schema) {
    options.deterministic &= !schema.runs_may_differ();
    return options;
  }

 protected:
  // Garbage of one run; what differs between two patterns was read where nobody wrote.
  struct Pattern {
    uint8_t fill, fence;
  };
  static constexpr Pattern kPattern{0xff, 0xa5}, kOtherFill{0x3c, 0xa5}, kOtherFence{0xff, 0x3c};

  static std::string KernelName(const Kernel& kernel) {
    return StrCat(kernel.device, "/", kernel.backend);
  }
  void Note(std::string note) {
    for (const std::string& known : report_.notes)
      if (known == note) return;
    report_.notes.push_back(std::move(note));
  }
  // `problem` identifies what is wrong whatever the inputs are, so that it is reported once.
  void Find(const std::string& problem, const std::string& sentence) {
    const std::string key = StrCat(kernel_ ? KernelName(*kernel_) : "", " ", problem);
    for (const std::string& known : found_)
      if (known == key) return;
    found_.push_back(key);
    report_.findings.push_back(
        case_ ? StrCat(sentence, "  [", KernelName(*kernel_), "; ", case_->Describe(), "]")
              : sentence);
  }
  bool Found(const std::string& problem) const {
    for (const std::string& known : found_)
      if (known == StrCat(KernelName(*kernel_), " ", problem)) return true;
    return false;
  }
  // The node writes to input i, and says so.
  bool MayChange(size_t i) const {
    for (int may : options_.mutated_inputs)
      if (static_cast<size_t>(may) == i) return true;
    for (int may : schema_.MutatedInputs(def_))
      if (static_cast<size_t>(may) == i) return true;
    return false;
  }
  double Tolerance(const Tensor& tensor) const {
    return options_.tolerance >= 0 ? options_.tolerance : DefaultTolerance(tensor.dtype());
  }
  CheckedNode Node(const OperatorDef& def, Pattern pattern = kPattern) {
    GuardAllocator::Global().SetPattern(pattern.fill, pattern.fence);
    return CheckedNode(schema_, *kernel_, def, options_.deadline_ms);
  }
  CheckedNode Node() { return Node(def_); }
  Result Run(CheckedNode& node, Mode mode = Mode::kRun) {
    ++report_.runs;
    const Result result = node.Run(mode);
    dead_ |= result == Result::kStuck;
    for (const std::string& name : node.arguments_read())
      if (!schema_.TakesArgument(name))
        Find("argument " + name, StrCat("it reads the argument '", name,
                                        "', which no node can give, because its schema does not "
                                        "declare it",
                                        schema_.SuggestArgument(name)));
    return result;
  }
  // The work goes on after it was issued, on threads that are not this one's.
  bool Asynchronous() const { return kernel_->device != DeviceType::kCPU; }

  // The first output that differs, in words; empty when none does.
  std::string Differs(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      bool tolerant = false) const {
    for (size_t o = 0; o < found.size(); ++o) {
      const std::string how =
          Difference(found[o], expected[o], tolerant ? Tolerance(expected[o]) : 0);
      if (!how.empty()) return StrCat(NameOf("output", o, def_.outputs()), ": ", how);
    }
    return {};
  }
  // Runs `node` and reports a failure or other outputs than expected as `sentence`. False if so.
  bool Expect(CheckedNode& node, const std::vector<Tensor>& expected, const std::string& problem,
              const std::string& sentence, Mode mode = Mode::kRun, bool tolerant = false) {
    const Result result = Run(node, mode);
    if (result != Result::kOk) {
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

  const OpSchema& schema_;
  const OperatorDef def_;
  const CheckOptions options_;
  const Kernel* kernel_ = nullptr;
  const Kernel* reference_ = nullptr;  // null while it is checked itself
  const CheckCase* case_ = nullptr;
  DType dtype_ = DType::kUndefined;
  bool dead_ = false;  // the kernel never completed
  CheckReport report_;

 private:
  std::vector<std::string> found_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_SESSION_HPP_
