// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator is
// the same call with everything but the run done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

#include <optional>

#include "opkit/device/event.hpp"
#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit::inline OPKIT_ABI {

struct InvokeOptions {
  std::optional<Device> device = {};  // default: that of the first input
  // Backends to try; default: the registry's order. Error (kNotFound) for one that no kernel of the
  // program has.
  std::string engine = {};
  int num_outputs = -1;  // needed only where the schema leaves it open
  // The backends of `engine` and no others: Error (kUnsupported) where none of them takes the call.
  bool require_engine = false;
};

// An operator ready to be called again and again: schema, kernel and attributes are settled, and
// while the inputs' dtypes and shapes stay the same, so is inference. Where the operator has a
// kernel of a ranked backend, new dtypes or shapes also select anew, which makes another operator.
// Nothing of the caller's is held between calls. A call returns when the work is done. One thread
// at a time: a call during another one, of another thread or from the operator's own body, is an
// Error (kFailedPrecondition). Threads that call at once have one each.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
//   axpy.Run({x, y}, outputs);                    // into tensors of the caller's: no allocation
class ResolvedOperator {
 public:
  // Errors: as CreateOperator; kInvalidArgument when the number of outputs is open.
  ResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                   const InvokeOptions& options = {});
  // `present[i]` 0 leaves optional input i out.
  OPKIT_IMAGE_LOCAL ResolvedOperator(const std::string& op, const std::vector<int>& present,
                                     Arguments args, const InvokeOptions& options);

  // Runs on `inputs` and returns new outputs. Errors: kInvalidArgument for a wrong count or shapes
  // that inference refuses; kFailedPrecondition during another call; those that the operator
  // throws.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  // Runs into `outputs`, whose memory is reused where it fits. On an Error they are as they were,
  // but for contents that the operator had begun to write.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, false);
  }
  // As Run, but for the end of the work, which the caller waits for on its stream and keeps all
  // tensors until then: on an asynchronous device it is only issued.
  void Issue(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, true);
  }

  int num_outputs() const { return static_cast<int>(def_.outputs().size()); }

  // The operator in use; later calls run it. Where kernels are selected, a call with new dtypes or
  // shapes replaces it, and with it its observers.
  OperatorBase& op();

 private:
  void RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  struct Release;
  // Holds the handle for one call. A handle that is moved from or to is in no call.
  class InCall {
   public:
    InCall() = default;
    InCall(InCall&&) noexcept {}
    InCall& operator=(InCall&&) noexcept { return *this; }
    bool Begin() { return !taken_.exchange(true, std::memory_order_acquire); }
    // Release: the next call sees what this one has left.
    void End() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

  const OpSchema* schema_;
  OperatorDef def_;
  detail::ResolvedCall call_;
  InCall in_call_;
};

namespace detail {

// 1 for each input, 0 where an optional one is left out.
std::vector<int> PresentInputs(std::span<const Tensor> inputs);

}  // namespace detail

// Calls operator `op` once, with the default order of kernels on the device of the first input. A
// default-constructed Tensor leaves an optional input out. Errors: as CreateOperator and Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
OPKIT_IMAGE_LOCAL std::vector<Tensor> Invoke(const std::string& op,
                                             const std::vector<Tensor>& inputs, Arguments args = {},
                                             InvokeOptions options = {});

// The outputs of a call that goes on.
class PendingOutputs {
 public:
  // Completes with the call, or fails with its Error.
  const Event& event() const;
  // Waits, and returns them; meanwhile the thread runs other work of the pool. Errors: those of
  // Invoke; kFailedPrecondition for a second Get.
  std::vector<Tensor> Get();

 private:
  OPKIT_IMAGE_LOCAL friend PendingOutputs InvokeAsync(const std::string& op,
                                                      std::vector<Tensor> inputs, Arguments args,
                                                      InvokeOptions options);
  struct State;
  explicit PendingOutputs(IntrusivePtr<RefCounted> state);
  State& state() const;
  IntrusivePtr<RefCounted> state_;  // a State
};

// Invoke on a thread of ThreadPool::Current(), under the invocation that is current here: a custom
// operator's sub-operators run beside its own code. In a pool of one thread the call runs at once.
// Errors, of this call: as CreateOperator.
//
//   PendingOutputs sum = InvokeAsync("Add", {x, y});
//   …
//   std::vector<Tensor> out = sum.Get();
OPKIT_IMAGE_LOCAL PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                             Arguments args = {}, InvokeOptions options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/invoke.ipp"
#endif

#endif  // OPKIT_OP_INVOKE_HPP_
