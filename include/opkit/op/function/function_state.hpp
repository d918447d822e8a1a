// The state of a function operator between its runs: made by the record's createOpState, and shared
// with the backward operators of the same node. For the definitions of function_body.hpp.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_STATE_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_STATE_HPP_

#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/function/function_device_link.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The functions of a record that one operator runs, and all that stays the same from run to run.
struct FunctionNode {
  FunctionNode(OperatorBase& node, FunctionRecord functions_of, FunctionPass its_pass)
      : op(node),
        record(std::move(functions_of)),
        in_use(record->in_use),
        pass(its_pass),
        functions(*record->Find(node.device().type)),
        attrs(node.def().args()) {}
  bool is_forward() const { return pass == FunctionPass::kForward; }

  OperatorBase& op;
  const FunctionRecord record;
  const IntrusivePtr<RefCounted> in_use;
  const FunctionPass pass;
  FunctionDevice& functions;
  const AttrMap attrs;
};

// A forward operator leaves its state in a blob, where the backward operators of the same node find
// it. `op` is emptied when the forward operator is destroyed.
struct FunctionState : RefCounted {
  IntrusivePtr<StatefulOp> op;
  bool is_shared = false;  // some backward operator has found it
  Mutex mutex;  // held by the runs of a shared one: those of two losses may come side by side
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;
inline std::string FunctionStateBlob(const OperatorDef& def) {
  return StrCat("__state of ", def.type(), " ", def.name(), " ",
                def.outputs().empty() ? std::string() : def.outputs()[0]);
}

// One operator's hold on its state, which it has made or found.
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
      direct_ = node.is_forward() ? kernel.forward : kernel.backward;
      direct_instance_ = direct->instance;
    }
    if (node.functions.shares_state && node.is_forward()) LeaveForBackward(node);
  }
  FunctionStateHandle(const FunctionStateHandle&) = delete;
  FunctionStateHandle& operator=(const FunctionStateHandle&) = delete;
  ~FunctionStateHandle() {
    if (owns_state_) state_->op = {};
  }

  bool has_direct() const { return direct_; }
  // Calls the state's C function.
  opkit_status CallDirect(const opkit_call* call) const { return direct_(direct_instance_, call); }
  // Null without a state, and after the operator that made it is destroyed.
  IntrusivePtr<StatefulOp> op() const { return state_ ? state_->op : IntrusivePtr<StatefulOp>(); }
  OpStatus Run(const FunctionNode& node, std::span<const OpTensor> inputs,
               std::span<OpTensor> outputs, OpResource& resource) const {
    if (!state_->op)
      return OpStatus::Failure("the operator ", node.record->name,
                               " that made the state is destroyed");
    return state_->op->Run(node.pass, inputs, outputs, resource);
  }

  // Held by a run of a state that several operators share; else null.
  Mutex* mutex() const {
    return shareable_ && shareable_->is_shared ? &shareable_->mutex : nullptr;
  }

 private:
  // Not called directly: the owner may end before this operator.
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
  static IntrusivePtr<StatefulOp> MakeOp(FunctionNode& node) {
    const OpContext context{node.op.device(), &node.op.def()};
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

  FunctionStatePtr state_;
  FunctionState* shareable_ = nullptr;  // the same, where another operator may run it as well
  decltype(opkit_kernel::forward) direct_ = nullptr;  // in place of the state's Run
  void* direct_instance_ = nullptr;
  bool owns_state_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_STATE_HPP_
