// OperatorCall: a ResolvedOperator's operator, bound to its own workspace and run on the caller's
// tensors. It selects the kernel for the tensors' types, and converts tensors to the layouts of the
// kernel.
#ifndef OPKIT_OP_CALL_OPERATOR_CALL_HPP_
#define OPKIT_OP_CALL_OPERATOR_CALL_HPP_

#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operator that ResolvedOperator calls on the caller's tensors.
class OperatorCall {
 public:
  // Throws the errors of CreateOperator.
  OPKIT_IMAGE_LOCAL OperatorCall(const OpSchema& schema, const OperatorDef& def);

  // Runs like ResolvedCall::run.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  OperatorBase& op() { return *op_; }

 private:
  struct Release;
  // The workspace of one operator. Each operator has its own workspace, so that state in the
  // workspace does not disturb the next operator.
  struct Place {
    std::unique_ptr<Workspace> workspace;
    std::vector<Tensor*> inputs;
  };
  Place MakePlace() const;
  void SetOperator(std::unique_ptr<OperatorBase> op, Place place);
  // Makes the operator of the first candidate for the current inputs.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void Select();
  // Converts the inputs to the operator's layouts.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertInputs();
  // Converts an output to the standard layout, in the caller's memory if that fits.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertOutput(const Tensor& made, Tensor& output) const;

  const OpSchema& schema_;
  OperatorDef def_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<OperatorBase> op_;
  std::vector<Tensor*> inputs_;  // in the workspace; null for an input that is left out
  std::vector<Blob*> outputs_;
  bool checks_types_ = false;  // infers before a run, because the operator itself does not
  bool selects_ = false;       // the order of kernels depends on the inputs
  bool converts_ = false;      // the operator has other layouts than the standard one
  std::vector<InferenceCache::Output> selected_for_;  // dtypes and shapes of the inputs
};

OPKIT_IMAGE_LOCAL ResolvedCall MakeOperatorCall(const OpSchema& schema, const OperatorDef& def);
// Lets Invoke and ResolvedOperator call kernels other than typed CPU kernels. The registration of
// such a kernel calls it.
OPKIT_IMAGE_LOCAL void UseOperatorCalls() noexcept;

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/call/impl/operator_call.ipp"
#endif

#endif  // OPKIT_OP_CALL_OPERATOR_CALL_HPP_
