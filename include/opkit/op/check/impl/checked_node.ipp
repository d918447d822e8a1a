// CheckedNode: one operator under test in its own workspace, with copies of its inputs. Failures of
// a run become text.
#ifndef OPKIT_OP_CHECK_IMPL_CHECKED_NODE_IPP_
#define OPKIT_OP_CHECK_IMPL_CHECKED_NODE_IPP_

#include <algorithm>
#include <chrono>

#include "opkit/base/process/child_process.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/check/guard_allocator.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the name of a value for messages: "output 0 'z'".
inline std::string NameOf(const char* what, size_t i, const std::vector<std::string>& names) {
  return StrCat(what, " ", i, " '", names[i], "'");
}

// Ends a check in a child process: a thread that exists only in the parent may complete the run.
struct NeedsTheParent {};

enum class CheckedRun : uint8_t { kOk, kRefused, kUnsupported, kStuck };
enum class RunMode : uint8_t { kRun, kAsync };

// An operator under test in its own workspace, with copies of its inputs.
class CheckedNode {
 public:
  // `def` is the target's node, perhaps with other names of its values. The target and the kernel
  // must outlive this object.
  CheckedNode(const CheckTarget& target, const Kernel& kernel, const OperatorDef& def,
              const std::vector<Tensor>& inputs)
      : target_(target), kernel_(kernel), def_(def), ws_(std::make_unique<Workspace>()) {
    def_.Device(kernel.device, def.device().index);
    for (const auto* names : {&def_.inputs(), &def_.outputs()})
      for (const std::string& name : *names)
        if (!name.empty()) ws_->CreateTensor(name);
    Feed(inputs);
  }

  const std::string& error() const { return error_; }
  // Makes the operator in this configuration, not in the first that the kernel proposes. Must be
  // called before the first run.
  void SetConfig(const KernelConfig& config) { config_ = config; }

  // Sets the inputs to dense copies in new memory.
  void Feed(const std::vector<Tensor>& inputs) {
    for (size_t i = 0; i < def_.inputs().size(); ++i)
      if (!def_.inputs()[i].empty()) *Input(i) = CopyOf(inputs[i]);
  }
  // Returns a tensor of the workspace. The caller may replace it by a tensor that shares memory or
  // has strides.
  Tensor* Input(size_t i) { return ws_->CreateTensor(def_.inputs()[i]); }
  Tensor* Output(size_t o) { return ws_->CreateTensor(def_.outputs()[o]); }

  // Runs the operator; the first call creates it. After kStuck (the event did not complete) the
  // node must not be used.
  CheckedRun Run(RunMode mode = RunMode::kRun) {
    return Try([&] {
      // An operator with its own asynchronous part may never complete. Only its event has a
      // deadline.
      if (mode == RunMode::kRun && (!op_->HasAsyncPart() || op_->SupportsAsyncScheduling())) {
        op_->Run();
      } else {
        op_->RunAsync();
        // Count the threads before reading the event: a thread may complete the event and end.
        if (target_.lacks_threads && CountOtherThreads() == 0 && op_->event().IsScheduled())
          Throw(ErrorCode::kDeadlineExceeded, "no thread of this process completes its event");
        op_->event().Finish(std::chrono::milliseconds(target_.options.run.deadline_ms));
      }
    });
  }
  // Issues a run on a stream that waits for `gate`, and then calls `issued`, which opens the gate.
  CheckedRun RunBehind(const Event& gate, FunctionRef<void()> issued) {
    return Try([&] {
      op_->WaitEvent(gate, 0);
      op_->RunAsync(0);
      issued();
      op_->event().Finish(std::chrono::milliseconds(target_.options.run.deadline_ms));
    });
  }

  // Returns copies of the outputs; an undefined tensor for an output that is left out or is no
  // tensor.
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
      const std::string& name = def_.inputs()[i];
      if (name.empty() || std::ranges::count(def_.outputs(), name)) continue;
      const Tensor now = CopyOf(ConvertLayout(*ws_->GetTensor(name), {}));
      if (now.dtype() != fed[i].dtype() || now.shape() != fed[i].shape() ||
          !SameBytes(now, CopyOf(fed[i])))
        out.push_back(i);
    }
    return out;
  }

 private:
  CheckedRun Try(FunctionRef<void()> run) {
    try {
      if (!op_) Create();
      ConvertInputs();
      run();
      ConvertOutputs();
      return CheckedRun::kOk;
    } catch (const UnsupportedOperatorFeature& error) {
      error_ = error.message();
      return CheckedRun::kUnsupported;
    } catch (...) {
      const Error error = CurrentError();
      error_ = error.message();
      if (error.code() != ErrorCode::kDeadlineExceeded || !op_ || !op_->event().IsScheduled())
        return CheckedRun::kRefused;
      // Work may still be in flight: leak the operator and its memory.
      static auto* abandoned =
          new std::vector<std::pair<std::unique_ptr<Workspace>, std::unique_ptr<OperatorBase>>>;
      abandoned->emplace_back(std::move(ws_), std::move(op_));
      return CheckedRun::kStuck;
    }
  }
  void Create() {
    if (std::string why = target_.schema.Verify(def_); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why);
    std::vector<Tensor> inputs;
    for (const std::string& name : def_.inputs())
      inputs.push_back(name.empty() ? Tensor() : *ws_->GetTensor(name));
    const auto config = config_ ? config_ : FirstProposal(kernel_, target_.schema, def_, inputs);
    const bool in_layouts = config && !config->is_standard();
    if (in_layouts && kernel_.device != DeviceType::kCPU)
      throw UnsupportedOperatorFeature("it works in layouts, which are checked on the CPU alone");
    const bool is_asked_for = in_layouts || (config && !config->variant.empty()) || config_;
    op_ = CreateWith(kernel_, target_.schema, def_, ws_.get(), is_asked_for ? &*config : nullptr);
    if (!op_) throw UnsupportedOperatorFeature("its creator returned null");
  }
  // Converts inputs to the kernel's layouts, as a plan does. Converts them back to check that no
  // element is lost.
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

  const CheckTarget& target_;
  const Kernel& kernel_;
  OperatorDef def_;
  std::unique_ptr<Workspace> ws_;
  std::unique_ptr<OperatorBase> op_;
  std::optional<KernelConfig> config_;
  std::string error_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_CHECKED_NODE_IPP_
