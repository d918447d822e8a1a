// ReadyOperator: an operator that is prepared for a host's calls, with views of the host's tensors
// as inputs and outputs. An output that the host gives is compared with the inferred one before the
// run, so that a wrong output is an Error and nothing is written to it.
#ifndef OPKIT_EXPORT_READY_OPERATOR_HPP_
#define OPKIT_EXPORT_READY_OPERATOR_HPP_

#include "opkit/export/foreign_tensor.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// One operator with fixed attributes and a fixed number of inputs. It makes one call at a time.
//
//   ReadyOperator axpy("Axpy", {1, 1}, {{"alpha", 2.0}});
//   axpy.SetInput(0, x), axpy.SetInput(1, y);   // ForeignTensors
//   axpy.SetOutput(0, z);                       // or after the run: z = axpy.TakeOutput(0)
//   axpy.Run();
//   axpy.Release();
//
// Every call sets all inputs that are not left out, and ends with Release, also after an Error: a
// Lease of core.hpp does so. A host that allocates the outputs itself asks InferOutputs for their
// types first. CopyOutput copies an output whose shape only the run decides.
class OPKIT_IMAGE_LOCAL ReadyOperator {
 public:
  // `present` has a 1 for each input, and a 0 for an optional input that is left out. A negative
  // `num_outputs` means the schema's number. Throws the errors of ResolvedOperator.
  ReadyOperator(const std::string& op, const std::vector<int>& present, Arguments args = {},
                Device device = {}, int num_outputs = -1)
      : ReadyOperator(op, present, std::move(args),
                      InvokeOptions{.device = device, .num_outputs = num_outputs}) {}
  ReadyOperator(const std::string& op, const std::vector<int>& present, Arguments args,
                const InvokeOptions& options);

  // Return the facts of the node that a call runs.
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(results_.size()); }
  bool has_input(int i) const { return !def().inputs()[Index(i)].empty(); }
  const OpSchema& schema() const { return op_.schema(); }
  const OperatorDef& def() const { return op_.def(); }
  Device device() const { return def().device(); }

  // Views the host's tensor as input i. Throws the errors of ViewForeign; kInvalidArgument if the
  // operator writes to this input, and its strides or its address do not allow a view.
  void SetInput(int i, const ForeignTensor& tensor) {
    ViewForeign(tensor, inputs_[Index(i)]);
    if (mutated_ && inputs_[Index(i)].raw_data() != tensor.data) [[unlikely]]
      RefuseCopyOfMutated(i);
  }
  // Takes a tensor that keeps the host's memory alive, for a host whose operators may keep inputs.
  void SetInput(int i, Tensor tensor) { inputs_[Index(i)] = std::move(tensor); }

  // An output before the run: `dtype` may be kUndefined, and `shape` is valid if `known`.
  using Inferred = InferenceCache::Output;
  // Returns the outputs that the inputs decide, valid until the next SetInput. Throws the errors of
  // the operator's inference, with the same text as Run.
  std::span<const Inferred> InferOutputs();

  // Makes Run write output o to the host's tensor; call it after the SetInputs. Throws
  // kInvalidArgument if its shape, and kTypeMismatch if its dtype, is not the inferred one;
  // kInvalidArgument if it shares memory with another output. If it shares memory with an input,
  // the result is copied to it at the end of the run, unless the schema allows to write in place.
  // An output without SetOutput gets new memory.
  void SetOutput(int o, const ForeignTensor& tensor);
  // Takes a tensor that keeps the host's memory alive.
  void SetOutput(int o, Tensor tensor);

  // Runs, and returns when the work is done. Throws the errors of ResolvedOperator::Run; those of
  // SetOutput if a result does not fit an output that inference does not know. Then no output is
  // written to, except for contents that the operator had begun to write.
  void Run() { RunBy(nullptr, false); }
  // Runs like Run, on the host's stream, and returns once the work is issued. Throws kUnsupported
  // if the operator's device has no native streams.
  void Issue(void* native_stream) { RunBy(native_stream, true); }

  // Returns the result for output o after the run, for its dtype and shape.
  const Tensor& result(int o) const { return results_[Index(o)]; }
  // Returns the result as a tensor that shares no memory with the host's tensors.
  Tensor TakeOutput(int o);
  // Copies the result to the host's tensor. Throws the errors of SetOutput.
  void CopyOutput(int o, const ForeignTensor& tensor) const;

  // Ends the call: forgets all tensors of the host.
  void Release() noexcept;

 private:
  // An output that the host gives.
  struct Given {
    bool given = false;
    bool viewed = false;  // the operator writes to the host's memory
    ForeignTensor tensor;
    Tensor owner;  // keeps the memory of `tensor` alive, and its shape; may be empty
    Dims strides;  // those of `owner`
  };
  void RefuseCopyOfMutated(int i) const;
  bool SharesInput(int o) const;
  void CheckApart(int o, const ForeignTensor& found) const;
  void CheckFits(int o, DType dtype, const Shape* shape, const ForeignTensor& found) const;
  void RunBy(void* native_stream, bool issue);

  ResolvedOperator op_;
  const uint64_t mutated_;  // a bit for each input that the operator writes to
  InferenceCache inference_;
  std::vector<const Tensor*> present_;    // the inputs; null for one that is left out
  std::vector<Tensor> inputs_, results_;  // views, or the operator's own results
  std::vector<Given> given_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/ready_operator.ipp"
#endif

#endif  // OPKIT_EXPORT_READY_OPERATOR_HPP_
