// A node's functions, and the state that it keeps between its runs.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_STATE_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_STATE_IPP_

#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/function/function_body.hpp"
#include "opkit/op/function/function_calls.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Counts an operator in its library's FunctionUse for as long as it lives.
class CountedOperator {
 public:
  explicit CountedOperator(FunctionUse* use) : use_(use) {
    if (use_) use_->operators.fetch_add(1, std::memory_order_relaxed);
  }
  CountedOperator(CountedOperator&&) = delete;
  ~CountedOperator() {
    if (use_) use_->operators.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  FunctionUse* use_;  // null in the program itself
};

// The functions of a record that one operator runs, and the data that is the same in all runs.
struct FunctionNode {
  OperatorBase& op;
  const FunctionRecord record;
  const FunctionPass pass;
  FunctionDevice& functions;
  const IntrusivePtr<FunctionUse> in_use = record->in_use;
  const CountedOperator counted{in_use.get()};
  const AttrMap attrs = record->Attrs(op.def().args());

  bool is_forward() const { return pass == FunctionPass::kForward; }
};

// The state that a forward operator stores in a blob for the backward operators of the same node.
// `op` is null after the forward operator is destroyed.
struct FunctionState : RefCounted {
  IntrusivePtr<StatefulOp> op;
  bool is_shared = false;  // a backward operator has found this state
  Mutex mutex;  // held by runs of a shared state: two backward graphs may use it in parallel
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;

// Gives an operator access to its state: makes a new state, or finds the state of a forward
// operator.
class FunctionStateHandle {
 public:
  explicit FunctionStateHandle(FunctionNode& node) {
    if (!node.functions.create_state) return;
    if (node.functions.shares_state && !node.is_forward() &&
        node.op.def().args().Has(kStateArgument)) {
      FindForwardState(node);
      return;
    }
    state_ = MakeIntrusive<FunctionState>();
    state_->op = MakeOp(node);
    owns_state_ = true;
    if (const auto* direct = dynamic_cast<const DirectState*>(state_->op.get())) {
      const opkit_kernel& kernel = node.functions.abi;
      later_direct_ = node.is_forward() ? kernel.forward : kernel.backward;
      direct_instance_ = direct->instance;
    }
    if (node.functions.shares_state && node.is_forward()) LeaveForBackward(node);
  }
  FunctionStateHandle(FunctionStateHandle&&) = delete;
  ~FunctionStateHandle() {
    if (owns_state_) state_->op = {};
  }

  bool has_direct() const { return direct_; }
  // Calls the state's C function.
  opkit_status CallDirect(const opkit_call* call) const { return direct_(direct_instance_, call); }
  // Adds the state, if it exists, to `kept`, and the node into which the state may point.
  void KeepIn(RefCountedList& kept) const {
    if (state_ && state_->op) kept.push_back(state_->op);
    if (node_) kept.push_back(node_);
  }
  OpStatus Run(const FunctionNode& node, std::span<const OpTensor> inputs,
               std::span<OpTensor> outputs, OpResource& resource) {
    if (!state_->op)
      return OpStatus::Failure("the operator ", node.record->name,
                               " that made the state is destroyed");
    OpStatus status = state_->op->Run(node.pass, inputs, outputs, resource);
    direct_ = later_direct_;
    return status;
  }

  // Returns the mutex that a run holds if several operators share the state; else null.
  Mutex* mutex() const {
    return shareable_ && shareable_->is_shared ? &shareable_->mutex : nullptr;
  }

 private:
  // Finds the state of the forward operator. Does not set a direct call, because the state's owner
  // may be destroyed before this operator.
  void FindForwardState(const FunctionNode& node) {
    const OperatorDef& def = node.op.def();
    const Blob* blob = node.op.workspace()->FindBlob(def.args().Get<std::string>(kStateArgument));
    if (!blob)
      Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def), " needs the state of ",
            node.record->name, ", whose operator must be created before it, in the same workspace");
    state_ = blob->Get<FunctionStatePtr>();
    state_->is_shared = true;
    shareable_ = state_.get();
  }
  // Makes the state. Makes no AbiNode for a library's operator, because the library's hook makes
  // its own.
  IntrusivePtr<StatefulOp> MakeOp(FunctionNode& node) {
    if (node.record->library.empty()) node_ = MakeIntrusive<AbiNode>(node.op.def());
    const OpContext context{node.op.device(), &node.op.def(), node_ ? &node_->node() : nullptr,
                            node.op.config()};
    IntrusivePtr<StatefulOp> made;
    CallFunction(*node.record, "createOpState",
                 [&] { return node.functions.create_state(node.attrs, context, made); });
    if (!made)
      Throw(ErrorCode::kOperatorFailed, "createOpState of operator ", node.record->name,
            " succeeded but made no StatefulOp");
    return made;
  }
  void LeaveForBackward(const FunctionNode& node) {
    const OperatorDef& def = node.op.def();
    shareable_ = state_.get();
    Blob* blob = node.op.workspace()->CreateBlob(FunctionStateBlob(def));
    if (blob->IsType<FunctionStatePtr>() && blob->Get<FunctionStatePtr>()->op)
      Throw(ErrorCode::kAlreadyExists, "two operators ", ToString(def),
            " that keep a state write the same output; give them different names");
    blob->Emplace<FunctionStatePtr>(state_);
  }

  IntrusivePtr<AbiNode> node_;  // the state may point into it
  FunctionStatePtr state_;
  FunctionState* shareable_ = nullptr;  // state_ if another operator may also run it, else null
  // The state's C function, which CallDirect calls from the second run on. The first run calls the
  // state's Run; afterwards `direct_` gets the function from `later_direct_`.
  decltype(opkit_kernel::forward) direct_ = nullptr, later_direct_ = nullptr;
  void* direct_instance_ = nullptr;
  bool owns_state_ = false;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_STATE_IPP_
