// DirectCall: a typed operator's function called on the caller's tensors, without a workspace and
// without an operator. Inference, checks, errors and profile are those of a run of the operator.
#ifndef OPKIT_OP_CALL_DIRECT_CALL_HPP_
#define OPKIT_OP_CALL_DIRECT_CALL_HPP_

#include "opkit/op/call/resolved_call.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/typed/typed_call.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class DirectCall {
 public:
  // Errors: as TypedCall, with the node and the kernel as context.
  DirectCall(const Kernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // As ResolvedCall::run: the work is done when it is issued.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs);

 private:
  struct Finish;
  void Call(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  // The input as the function takes it: on this device, in the standard layout, dense.
  const Tensor* Unusual(size_t i, const Tensor& input);
  // The tensor for output o: the caller's where it fits and no input is overwritten by it, else one
  // of made_.
  const Tensor* Output(size_t o, std::span<const Tensor> inputs, const Tensor& callers,
                       const Shape& shape, DType dtype);
  // Whether writing to the output would overwrite an input of the caller's that the schema does not
  // pair with it, or that the function reads by a copy, or another output.
  bool Clobbers(size_t o, std::span<const Tensor> inputs, const Tensor& output) const;
  [[noreturn]] OPKIT_COLD void Fail(std::span<const Tensor> inputs) const;
  OPKIT_COLD void DescribeSpan() const noexcept;

  OperatorIdentity identity_;
  TypedCall call_;
  Device device_;  // whose memory it reaches
  std::vector<uint64_t> inplace_masks_;
  uint64_t mutated_inputs_;
  InferenceCache inference_;
  SpanNames span_names_;  // once they were asked for
  // The tensors of the call in progress.
  std::vector<const Tensor*> inputs_;   // null where the node leaves one out
  std::vector<Tensor> copies_;          // of inputs that are not dense
  std::vector<Tensor> made_;            // where the caller's does not fit
  std::vector<const Tensor*> outputs_;  // the caller's, or into made_
};

// The call of a node whose only kernel on the device is a typed one for CPUContext; empty where it
// has another. Errors: kNotFound where there is none, kUnsupported where its backend is absent;
// those of the constructor.
OPKIT_IMAGE_LOCAL ResolvedCall MakeDirectCall(const OpSchema& schema, const OperatorDef& def);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/call/impl/direct_call.ipp"
#endif

#endif  // OPKIT_OP_CALL_DIRECT_CALL_HPP_
