// DirectCall: calls a typed operator's function on the caller's tensors, without a workspace and an
// operator. Inference, checks, errors and profile are the same as in a run of the operator.
#ifndef OPKIT_OP_CALL_DIRECT_CALL_HPP_
#define OPKIT_OP_CALL_DIRECT_CALL_HPP_

#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/typed/typed_call.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A typed kernel for CPUContext that is called directly for one node.
class DirectCall {
 public:
  // Throws the errors of TypedCall, with the node and the kernel as context.
  DirectCall(const Kernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // Runs like ResolvedCall::run; the work is done at return.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs);

 private:
  struct Finish;
  void Call(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  // Returns the input in the form that the function accepts: on this device, in the standard
  // layout, dense.
  const Tensor* Unusual(size_t i, const Tensor& input);
  // Returns the tensor for output o: the caller's tensor if it fits and writing to it overwrites no
  // input; otherwise a tensor in made_.
  const Tensor* Output(size_t o, std::span<const Tensor> inputs, const Tensor& callers,
                       const Shape& shape, DType dtype);
  // True if writing to the output would overwrite an earlier output or an input. Exception: an
  // input that the schema pairs with the output, if the function reads the input itself and not a
  // copy.
  bool Clobbers(size_t o, std::span<const Tensor> inputs, const Tensor& output) const;
  [[noreturn]] OPKIT_COLD void Fail(std::span<const Tensor> inputs) const;
  OPKIT_COLD void DescribeSpan() const noexcept;

  OperatorIdentity identity_;
  TypedCall call_;
  Device device_;  // the device whose memory the call reads
  std::vector<uint64_t> inplace_masks_;
  uint64_t mutated_inputs_;
  InferenceCache inference_;
  SpanNames span_names_;  // valid after the first recorded call
  // The tensors of the current call.
  std::vector<const Tensor*> inputs_;   // null for an input that is left out
  std::vector<Tensor> copies_;          // dense copies of inputs that are not dense
  std::vector<Tensor> made_;            // new tensors for outputs that do not fit
  std::vector<const Tensor*> outputs_;  // the caller's tensors, or tensors of made_
};

// Makes the call of a node whose only kernel on the device is a typed kernel for CPUContext;
// returns an empty call if there is another kernel. Throws kNotFound if there is no kernel;
// kUnsupported if its backend is unavailable; the constructor's errors.
OPKIT_IMAGE_LOCAL ResolvedCall MakeDirectCall(const OpSchema& schema, const OperatorDef& def);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/call/impl/direct_call.ipp"
#endif

#endif  // OPKIT_OP_CALL_DIRECT_CALL_HPP_
