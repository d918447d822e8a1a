// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator
// makes the same call repeatedly, with all preparation done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

#include <optional>

#include "opkit/device/event.hpp"
#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of Invoke, InvokeAsync and ResolvedOperator.
struct InvokeOptions {
  std::optional<Device> device = {};  // default: the device of the first input
  // Backends to try, in order, separated by commas; default: the registry's order. kNotFound for a
  // backend of which the program has no kernel.
  std::string backends = {};
  int num_outputs = -1;  // needed only if the schema does not decide it
  // kRequired uses no other backends; kUnsupported if none of them accepts the call.
  OperatorDef::BackendNeed backend_need = kPreferred;
};

// An operator that is prepared for repeated calls: schema, kernel and attributes are fixed, and
// inference runs again only for new dtypes or shapes of inputs. If the operator has a kernel of a
// ranked backend, new dtypes or shapes also cause a new selection, which makes another operator.
// The object keeps no tensors of the caller between calls. A call returns when the work is done.
// Allows one call at a time: a call during another call, from another thread or from the operator's
// own body, throws kFailedPrecondition. Concurrent threads need one object each.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
// into the caller's tensors: no allocation
class ResolvedOperator {
 public:
  // Throws the errors of CreateOperator; kInvalidArgument if the schema does not decide the number
  // of outputs.
  ResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                   const InvokeOptions& options = {});
  // Leaves optional input i out if present[i] is 0.
  OPKIT_IMAGE_LOCAL ResolvedOperator(const std::string& op, const std::vector<int>& present,
                                     Arguments args, const InvokeOptions& options);

  // Runs on `inputs` and returns new outputs. Throws kInvalidArgument for a wrong count or for
  // shapes that inference refuses; kFailedPrecondition during another call; and the errors of the
  // operator.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  // Runs into `outputs` and reuses their memory if it fits. After an Error the outputs are
  // unchanged, except for contents that the operator had begun to write.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, false);
  }
  // Like Run, but only issues the work on an asynchronous device and returns. The caller waits on
  // its stream for the end of the work, and keeps all tensors until then.
  void Issue(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, true);
  }

  // Returns the number of tensors that a call returns, or that Run takes.
  int num_outputs() const { return static_cast<int>(def_.outputs().size()); }
  // Return the operator's schema, and the node that a call runs, with the names of its values.
  const OpSchema& schema() const { return *schema_; }
  const OperatorDef& def() const { return def_; }

  // Returns the current operator, which later calls also run. If kernels are selected, a call with
  // new dtypes or shapes replaces the operator and its observers.
  OperatorBase& op();

 private:
  void RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  struct Release;
  // Marks a ResolvedOperator during a call. Moving a ResolvedOperator does not copy the mark.
  class CallGuard {
   public:
    CallGuard() = default;
    CallGuard(CallGuard&&) noexcept {}
    CallGuard& operator=(CallGuard&&) noexcept { return *this; }
    bool Begin() { return !taken_.exchange(true, std::memory_order_acquire); }
    // Release: the next call sees the results of this call.
    void End() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

  const OpSchema* schema_;
  OperatorDef def_;
  detail::ResolvedCall call_;
  CallGuard call_guard_;
};

namespace detail {

// Returns 1 for each present input, 0 for an optional input that is left out.
std::vector<int> PresentInputs(std::span<const Tensor> inputs);
// Returns the number of a node's outputs: `given`, or the schema's number if `given` is negative.
// Throws kInvalidArgument, with `mend` at the end of the message, if the schema does not decide the
// number.
int CountOutputs(const OpSchema& schema, size_t num_inputs, const Arguments& args, int given,
                 const char* mend);

}  // namespace detail

// Calls operator `op` once, by default with the registry's order of kernels on the device of the
// first input. A default-constructed Tensor leaves an optional input out. Throws the errors of
// CreateOperator and of Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
OPKIT_IMAGE_LOCAL std::vector<Tensor> Invoke(const std::string& op,
                                             const std::vector<Tensor>& inputs, Arguments args = {},
                                             InvokeOptions options = {});

// The future outputs of a call of InvokeAsync.
class PendingOutputs {
 public:
  // Returns the event of the call, which fails with the call's Error.
  const Event& event() const;
  // Waits for the outputs and returns them; the waiting thread runs other work of the pool. Throws
  // the errors of Invoke; kFailedPrecondition for a second Get.
  std::vector<Tensor> Get();

 private:
  OPKIT_IMAGE_LOCAL friend PendingOutputs InvokeAsync(const std::string& op,
                                                      std::vector<Tensor> inputs, Arguments args,
                                                      InvokeOptions options);
  struct State;
  explicit PendingOutputs(detail::IntrusivePtr<detail::RefCounted> state);
  State& state() const;
  detail::IntrusivePtr<detail::RefCounted> state_;  // a State
};

// Runs Invoke on a thread of ThreadPool::Current(), under the caller's current invocation: a custom
// operator's sub-operators run in parallel to its own code. In a pool of one thread the call runs
// before InvokeAsync returns. Throws the errors of CreateOperator; errors of the run come from Get.
//
//   PendingOutputs sum = InvokeAsync("Add", {x, y});
//   …
//   std::vector<Tensor> out = sum.Get();
OPKIT_IMAGE_LOCAL PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                             Arguments args = {}, InvokeOptions options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/invoke.ipp"
#endif

#endif  // OPKIT_OP_INVOKE_HPP_
