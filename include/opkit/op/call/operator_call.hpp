// OperatorCall: a ResolvedOperator's operator, bound to a workspace of its own, run on the caller's
// tensors. It selects the kernel for their types and converts layouts, where a kernel asks for
// that.
#ifndef OPKIT_OP_CALL_OPERATOR_CALL_HPP_
#define OPKIT_OP_CALL_OPERATOR_CALL_HPP_

#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class OperatorCall {
 public:
  // Errors: as CreateOperator.
  OPKIT_IMAGE_LOCAL OperatorCall(const OpSchema& schema, const OperatorDef& def);

  // As ResolvedCall::run.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  OperatorBase& op() { return *op_; }

 private:
  struct Release;
  // An operator's own workspace: state that it keeps there is not in the next operator's way.
  struct Place {
    std::unique_ptr<Workspace> workspace;
    std::vector<Tensor*> inputs;
  };
  Place MakePlace() const;
  void SetOperator(std::unique_ptr<OperatorBase> op, Place place);
  // Takes the first candidate for the inputs as they are now.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void Select();
  // Puts the inputs into the layouts that the operator takes.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertInputs();
  // Puts an output into the standard layout, in the caller's memory where that fits.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertOutput(const Tensor& made, Tensor& output) const;

  const OpSchema& schema_;
  OperatorDef def_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<OperatorBase> op_;
  std::vector<Tensor*> inputs_;  // in the workspace; null where left out
  std::vector<Blob*> outputs_;
  bool checks_types_ = false;  // before the run, for an operator that does not
  bool selects_ = false;       // some kernel's place depends on the inputs
  bool converts_ = false;      // the operator has other layouts than the standard one
  std::vector<InferenceCache::Output> selected_for_;  // inputs
};

OPKIT_IMAGE_LOCAL ResolvedCall MakeOperatorCall(const OpSchema& schema, const OperatorDef& def);
// Lets Invoke and ResolvedOperator call kernels that are no typed operator's on the CPU. What
// registers such a kernel calls it.
OPKIT_IMAGE_LOCAL void UseOperatorCalls() noexcept;

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/call/impl/operator_call.ipp"
#endif

#endif  // OPKIT_OP_CALL_OPERATOR_CALL_HPP_
