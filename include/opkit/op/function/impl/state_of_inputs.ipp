// StateOfInputs' definitions.
#ifndef OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_
#define OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_

#include <algorithm>

#include "opkit/op/function/state_of_inputs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE OpStatus StateOfInputs::Run(FunctionPass pass, std::span<const OpTensor> inputs,
                                         std::span<OpTensor> outputs, OpResource& resource) {
  std::span<const OpTensor> of_forward = inputs;
  if (pass == FunctionPass::kBackward) {  // gradients of outputs, inputs, outputs
    if (inputs.size() < outputs.size() || (inputs.size() - outputs.size()) % 2 != 0)
      return OpStatus::Failure("it has ", inputs.size(), " inputs for ", outputs.size(),
                               " gradients of inputs, expected an input for each gradient, and two "
                               "for each output of the forward operator");
    of_forward = inputs.subspan((inputs.size() - outputs.size()) / 2, outputs.size());
  }
  const opkit_call*& last_call = calls_[static_cast<int>(pass)];
  if (!state_ || !Fits(of_forward)) {
    IntrusivePtr<StatefulOp> before = state_;
    if (OpStatus status = Make(of_forward); !status.ok()) return status;
    // Work on a stream may still use the state, and so may a run that was cancelled: the operator
    // then makes a new opkit_call.
    if (before && (resource.call()->asynchronous || last_call != resource.call()))
      replaced_.push_back(std::move(before));
  }
  last_call = resource.call();
  return state_->Run(pass, inputs, outputs, resource);
}

OPKIT_INLINE bool StateOfInputs::Fits(std::span<const OpTensor> inputs) const {
  if (inputs.size() != shapes_.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype() != types_[i] || !std::ranges::equal(inputs[i].shape(), shapes_[i]))
      return false;
  return true;
}

OPKIT_INLINE OpStatus StateOfInputs::Make(std::span<const OpTensor> inputs) {
  ShapeVectors shapes;
  std::vector<DType> types;
  for (const OpTensor& input : inputs) {
    shapes.emplace_back(input.shape().begin(), input.shape().end());
    types.push_back(input.dtype());
  }
  IntrusivePtr<StatefulOp> made;
  try {
    if (OpStatus status = make_(shapes, types, made); !status.ok()) {
      if (const std::string why = status.message(); !why.empty())
        return OpStatus::Failure("createOpState failed: ", why);
      OPKIT_ERROR_MSG << " (createOpState returned FAIL)";  // behind the author's text
      return status;
    }
  } catch (Error& error) {
    error.AddContext("in createOpState");
    throw;
  } catch (...) {
    throw Error(ErrorCode::kOperatorFailed,
                StrCat("createOpState threw: ", CurrentError().message()))
        .SetCause(std::current_exception());
  }
  if (!made) return OpStatus::Failure("createOpState succeeded but made no StatefulOp");
  state_ = std::move(made);
  shapes_ = std::move(shapes);
  types_ = std::move(types);
  return {};
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_
