// CheckSession: the kernel and inputs under test, and the report of findings so far. It makes
// CheckedNodes: one operator in its own workspace, with copies of the inputs; failures become text.
// Only the definitions of op/check.hpp use it.
#ifndef OPKIT_OP_CHECK_CHECK_SESSION_HPP_
#define OPKIT_OP_CHECK_CHECK_SESSION_HPP_

#include <algorithm>
#include <chrono>

#include "opkit/base/child_process.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/check/guard_allocator.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the name of a value for messages: "output 0 'z'".
inline std::string NameOf(const char* what, size_t i, const std::vector<std::string>& names) {
  return StrCat(what, " ", i, " '", names[i], "'");
}

// Packs a report as text for another process; UnpackReport reads it there.
inline std::string PackReport(const CheckReport& report) {
  std::string out = StrCat(report.runs) + '\0';
  for (const std::string& finding : report.findings) out += "f" + finding + '\0';
  for (const std::string& note : report.notes) out += "n" + note + '\0';
  return out;
}
inline CheckReport UnpackReport(const std::string& packed) {
  CheckReport report;
  report.runs = std::atoi(packed.c_str());
  for (size_t at = packed.find('\0') + 1; at != 0 && at < packed.size();) {
    const size_t end = packed.find('\0', at);
    (packed[at] == 'f' ? report.findings : report.notes)
        .push_back(packed.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return report;
}

// Ends a check in a child process: a thread that exists only in the parent may complete the run.
struct NeedsTheParent {};

enum class CheckedRun : uint8_t { kOk, kRefused, kUnsupported, kStuck };
enum class RunMode : uint8_t { kRun, kAsync };

// An operator under test in its own workspace, with copies of its inputs.
class CheckedNode {
 public:
  CheckedNode(const OpSchema& schema, const Kernel& kernel, const OperatorDef& def,
              const std::vector<Tensor>& inputs, int deadline_ms, bool lacks_threads)
      : schema_(schema),
        kernel_(kernel),
        def_(def),
        deadline_ms_(deadline_ms),
        lacks_threads_(lacks_threads),
        ws_(std::make_unique<Workspace>()) {
    def_.Device(kernel.device, def.device().index);
    for (const auto* names : {&def_.inputs(), &def_.outputs()})
      for (const std::string& name : *names)
        if (!name.empty()) ws_->CreateTensor(name);
    Feed(inputs);
  }

  const std::string& error() const { return error_; }

  // Sets the inputs to dense copies in new memory.
  void Feed(const std::vector<Tensor>& inputs) {
    for (size_t i = 0; i < def_.inputs().size(); ++i)
      if (!def_.inputs()[i].empty()) *Input(i) = CopyOf(inputs[i]);
  }
  // Returns a tensor of the workspace. The caller may replace it by a tensor that shares memory or
  // has strides.
  Tensor* Input(size_t i) { return ws_->CreateTensor(def_.inputs()[i]); }
  Tensor* Output(size_t o) { return ws_->CreateTensor(def_.outputs()[o]); }

  // Runs the operator; creates it in the first call. After kStuck, when its event did not complete,
  // the node must not be used.
  CheckedRun Run(RunMode mode = RunMode::kRun) {
    return Try([&] {
      // An operator with its own asynchronous part may never complete: only its event has a
      // deadline.
      if (mode == RunMode::kRun && (!op_->HasAsyncPart() || op_->SupportsAsyncScheduling())) {
        op_->Run();
      } else {
        op_->RunAsync();
        // Count the threads before reading the event: a thread that has ended has completed it.
        if (lacks_threads_ && CountOtherThreads() == 0 && op_->event().IsScheduled())
          Throw(ErrorCode::kDeadlineExceeded, "no thread of this process completes its event");
        op_->event().Finish(std::chrono::milliseconds(deadline_ms_));
      }
    });
  }
  // Issues a run on a stream that waits for `gate`, and then calls `issued`, which opens the gate.
  template <class F>
  CheckedRun RunBehind(const Event& gate, F issued) {
    return Try([&] {
      op_->WaitEvent(gate, 0);
      op_->RunAsync(0);
      issued();
      op_->event().Finish(std::chrono::milliseconds(deadline_ms_));
    });
  }

  // Returns copies of the outputs; an undefined tensor for an output that is left out or no tensor.
  std::vector<Tensor> Outputs() const {
    std::vector<Tensor> out;
    for (const std::string& name : def_.outputs())
      out.push_back(ws_->HasTensor(name) ? CopyOf(*ws_->GetTensor(name)) : Tensor());
    return out;
  }
  // Returns the writes outside tensors since the last call, one sentence each.
  std::vector<std::string> Damage() const {
    std::vector<std::string> out;
    for (const GuardAllocator::Damage& damage : GuardAllocator::Global().TakeDamage())
      out.push_back(StrCat("it writes ",
                           damage.before && damage.after ? "before and past the ends"
                           : damage.before               ? "before the start"
                                                         : "past the end",
                           " of ", OwnerOf(damage.data), " (", damage.bytes, " bytes)"));
    return out;
  }
  // Returns the inputs that have changed since Feed although no output shares their blob.
  std::vector<size_t> ChangedInputs(const std::vector<Tensor>& fed) const {
    std::vector<size_t> out;
    for (size_t i = 0; i < def_.inputs().size(); ++i) {
      if (def_.inputs()[i].empty()) continue;
      const bool is_output = std::ranges::count(def_.outputs(), def_.inputs()[i]) > 0;
      const Tensor now = CopyOf(ConvertLayout(*ws_->GetTensor(def_.inputs()[i]), {}));
      if (!is_output && (now.dtype() != fed[i].dtype() || now.shape() != fed[i].shape() ||
                         !SameBytes(now, CopyOf(fed[i]))))
        out.push_back(i);
    }
    return out;
  }

 private:
  template <class F>
  CheckedRun Try(F run) {
    try {
      if (!op_) Create();
      ConvertInputs();
      run();
      ConvertOutputs();
      return CheckedRun::kOk;
    } catch (const UnsupportedOperatorFeature& error) {
      error_ = error.message();
      return CheckedRun::kUnsupported;
    } catch (const Error& error) {
      error_ = error.message();
      if (error.code() != ErrorCode::kDeadlineExceeded || !op_ || !op_->event().IsScheduled())
        return CheckedRun::kRefused;
      // Work may still be in flight: leak the operator and its memory.
      static auto* abandoned =
          new std::vector<std::pair<std::unique_ptr<Workspace>, std::unique_ptr<OperatorBase>>>;
      abandoned->emplace_back(std::move(ws_), std::move(op_));
      return CheckedRun::kStuck;
    } catch (...) {
      error_ = CurrentError().message();
      return CheckedRun::kRefused;
    }
  }
  void Create() {
    if (std::string why = schema_.Verify(def_); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why);
    std::vector<Tensor> inputs;
    for (const std::string& name : def_.inputs())
      inputs.push_back(name.empty() ? Tensor() : *ws_->GetTensor(name));
    const auto proposed = FirstProposal(kernel_, schema_, def_, inputs);
    const bool in_layouts = proposed && !proposed->is_standard();
    if (in_layouts && kernel_.device != DeviceType::kCPU)
      throw UnsupportedOperatorFeature("it works in layouts, which are checked on the CPU alone");
    op_ = CreateWith(kernel_, schema_, def_, ws_.get(), in_layouts ? &*proposed : nullptr);
    if (!op_) throw UnsupportedOperatorFeature("its creator returned null");
  }
  // Converts inputs to the kernel's layouts, as a plan does, and back to check that nothing is
  // lost.
  void ConvertInputs() {
    for (size_t i = 0; i < def_.inputs().size(); ++i) {
      const Layout wanted = op_->InputLayout(static_cast<int>(i));
      if (def_.inputs()[i].empty() || Input(i)->layout() == wanted) continue;
      Tensor& input = *Input(i);
      const Tensor before = CopyOf(input);
      input = ConvertLayout(input, wanted);
      if (!SameBytes(CopyOf(ConvertLayout(input, {})), before))
        Throw(ErrorCode::kInvalidArgument, "the conversions from standard to ", ToString(wanted),
              " and back do not give ", NameOf("input", i, def_.inputs()), " back");
    }
  }
  void ConvertOutputs() {
    for (size_t o = 0; o < def_.outputs().size(); ++o) {
      const std::string& name = def_.outputs()[o];
      if (!ws_->HasTensor(name) || !ws_->GetTensor(name)->initialized()) continue;
      Tensor& output = *ws_->GetTensor(name);
      const Layout promised = op_->OutputLayout(static_cast<int>(o));
      if (output.layout().id != promised.id) ThrowOtherLayout(def_, name, output, promised);
      output = ConvertLayout(output, {});
    }
  }
  std::string OwnerOf(const void* data) const {
    auto holds = [&](const std::string& name) {
      const Tensor* tensor = ws_->HasTensor(name) ? ws_->GetTensor(name) : nullptr;
      return tensor && tensor->storage() && tensor->storage()->data() == data;
    };
    for (size_t o = 0; o < def_.outputs().size(); ++o)
      if (holds(def_.outputs()[o])) return NameOf("output", o, def_.outputs());
    for (size_t i = 0; i < def_.inputs().size(); ++i)
      if (holds(def_.inputs()[i])) return NameOf("input", i, def_.inputs());
    return "scratch memory that it allocated";
  }

  const OpSchema& schema_;
  const Kernel& kernel_;
  OperatorDef def_;
  int deadline_ms_;
  bool lacks_threads_;
  std::unique_ptr<Workspace> ws_;
  std::unique_ptr<OperatorBase> op_;
  std::string error_;
};

// The state of one CheckOperator call.
class CheckSession {
 public:
  CheckSession(const OpSchema& its_schema, OperatorDef node, const CheckOptions& wanted,
               const ChildReporter* to_parent, bool without_threads)
      : schema(its_schema),
        def(std::move(node)),
        options(Effective(wanted, its_schema)),
        voice(to_parent),
        lacks_threads(without_threads) {
    report.op = schema.name();
    if (wanted.compare.deterministic && !options.compare.deterministic)
      Note("what its outputs hold, because its schema says that two runs may differ");
  }
  // Continues `before` with a node that has another value of one attribute; does not report earlier
  // findings again.
  CheckSession(CheckSession&& before, OperatorDef node, const CheckOptions& wanted,
               std::string with_value)
      : schema(before.schema),
        def(std::move(node)),
        options(Effective(wanted, before.schema)),
        voice(before.voice),
        lacks_threads(before.lacks_threads),
        value(std::move(with_value)),
        report(std::move(before.report)),
        found_(std::move(before.found_)),
        hinted_(before.hinted_) {}

  // The bytes of unwritten memory in one run. A result that differs between two patterns depends on
  // that memory.
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
  // Adds a finding. `problem` identifies the fault independent of the inputs, so that it is
  // reported once.
  void Find(const std::string& problem, const std::string& sentence) {
    const std::string key = StrCat(kernel ? KernelName(*kernel) : "", " ", problem);
    if (std::ranges::count(found_, key)) return;
    found_.push_back(key);
    report.findings.push_back(StrCat(sentence, HintOf(problem), Where()));
  }
  // Returns the kernel and inputs under test, and the attribute value that is not the default:
  // "  [cpu/reference; float32[2, 3]; mode=same]".
  std::string Where() const {
    if (!tested) return value.empty() ? "" : StrCat("  [", value, "]");
    return StrCat("  [", KernelName(*kernel), "; ", tested->Describe(),
                  value.empty() ? "" : "; " + value, "]");
  }
  // Sends the findings and the next step to the parent, which reports them after a crash or hang.
  void Begin(const std::string& step) const {
    if (!voice) return;
    voice->Answer(PackReport(report));
    voice->Step(StrCat(step, Asynchronous() ? kCaptureHint : "", Where()));
  }
  bool Found(const std::string& problem) const {
    return std::ranges::count(found_, StrCat(KernelName(*kernel), " ", problem)) > 0;
  }
  // True if input i may change, by the schema or the options.
  bool MayChange(size_t i) const {
    const int input = static_cast<int>(i);
    return std::ranges::count(options.compare.mutated_inputs, input) > 0 ||
           std::ranges::count(schema.MutatedInputs(def), input) > 0;
  }
  double Tolerance(const Tensor& tensor) const {
    return options.compare.tolerance >= 0 ? options.compare.tolerance
                                          : DefaultTolerance(tensor.dtype());
  }
  // Makes an operator of the kernel under test, with copies of the current inputs or of other
  // inputs.
  CheckedNode Node(const OperatorDef& node, const std::vector<Tensor>& inputs,
                   Pattern pattern = kPattern) const {
    GuardAllocator::Global().SetPattern(pattern.fill, pattern.fence);
    return CheckedNode(schema, *kernel, node, inputs, options.run.deadline_ms, lacks_threads);
  }
  CheckedNode Node(Pattern pattern = kPattern) const { return Node(def, tested->inputs, pattern); }
  CheckedRun Run(CheckedNode& node, RunMode mode = RunMode::kRun, const std::string& step = {}) {
    Begin(!step.empty() ? step : mode == RunMode::kAsync ? "run by RunAsync" : "run by Run");
    ++report.runs;
    const CheckedRun result = node.Run(mode);
    if (result == CheckedRun::kStuck && lacks_threads && !Asynchronous()) throw NeedsTheParent();
    dead |= result == CheckedRun::kStuck;
    return result;
  }
  // True if work continues on other threads after it was issued.
  bool Asynchronous() const { return kernel && kernel->device != DeviceType::kCPU; }

  // Describes the first output that differs; empty if none does.
  std::string Differs(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      bool tolerant = false) const {
    for (size_t o = 0; o < found.size(); ++o) {
      const std::string how =
          Difference(found[o], expected[o], tolerant ? Tolerance(expected[o]) : 0);
      if (!how.empty()) return StrCat(OutputName(o), ": ", how);
    }
    return {};
  }
  // Runs `node`; reports a failure, or outputs other than `expected`, as `sentence` and returns
  // false.
  bool Expect(CheckedNode& node, const std::vector<Tensor>& expected, const std::string& problem,
              const std::string& sentence, RunMode mode = RunMode::kRun, bool tolerant = false) {
    const CheckedRun result = Run(node, mode, sentence);
    if (result != CheckedRun::kOk) {
      Find(problem, StrCat(sentence, " it fails: ", node.error()));
      return false;
    }
    const std::string how = Differs(node.Outputs(), expected, tolerant);
    if (how.empty()) return true;
    Find(problem, StrCat(sentence, " it gives another result, ", how));
    return false;
  }

  // True if a problem was found that makes every comparison meaningless.
  bool Broken() const {
    for (const char* problem : {"outside", "garbage", "beyond", "input", "random", "unset"})
      if (Found(problem)) return true;
    return false;
  }

  const OpSchema& schema;
  const OperatorDef def;
  const CheckOptions options;
  const ChildReporter* const voice;  // reports to the waiting parent process; null outside a child
  const bool lacks_threads;          // a child whose parent had more threads
  const std::string value;           // "mode=same", not the default; or empty
  const Kernel* kernel = nullptr;
  const Kernel* reference = nullptr;  // null while the reference itself is checked
  const CheckCase* tested = nullptr;  // the current inputs
  DType dtype = DType::kUndefined;
  bool dead = false;  // the kernel never completed
  CheckReport report;

 private:
  static constexpr char kCaptureHint[] =
      "; is the body of ParallelFor or Launch a [&]? It runs when RunOnDevice has returned and its "
      "variables are gone: capture by value, [=]";

  // Returns the likely reason of a wrong result; once for each kernel.
  std::string HintOf(const std::string& problem) {
    const auto is_one_of = [&](std::initializer_list<const char*> problems) {
      return std::ranges::count(problems, problem) > 0;
    };
    if (kernel && Asynchronous() && hinted_ != kernel &&
        is_one_of({"outside", "garbage", "beyond", "random", "async", "state", "reference"}) &&
        std::ranges::none_of(found_, [](const std::string& known) {
          return known.starts_with(StrCat(DeviceType::kCPU, "/"));
        })) {
      hinted_ = kernel;
      return kCaptureHint;
    }
    if (is_one_of({"random", "state"}))
      return "; if it is meant to, its schema says Stateful() (stateful() of REGISTER_OP)";
    return {};
  }
  static CheckOptions Effective(CheckOptions options, const OpSchema& schema) {
    options.compare.deterministic &= !schema.runs_may_differ();
    return options;
  }
  std::vector<std::string> found_;  // kernel and problem
  const Kernel* hinted_ = nullptr;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_SESSION_HPP_
