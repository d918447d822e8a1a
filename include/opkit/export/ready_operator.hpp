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
//   axpy.SetOutput(0, z);                       // or afterwards: Tensor z = axpy.TakeOutput(0)
//   axpy.Run();
//
// Every call sets all its inputs, and ends with Release, also after an Error: a Lease of
// core.hpp does so. A host that allocates the outputs itself asks InferOutputs for their types
// first, and CopyOutput copies an output whose shape only the run decides.
class OPKIT_IMAGE_LOCAL ReadyOperator {
 public:
  // `present` has a 1 for each input, and a 0 for an optional input that is left out. A negative
  // `num_outputs` means the schema's number. Throws the errors of ResolvedOperator.
  ReadyOperator(const std::string& op, const std::vector<int>& present, Arguments args = {},
                Device device = {}, int num_outputs = -1);

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  bool has_input(int i) const { return present_[Index(i)]; }
  const OpSchema& schema() const { return *schema_; }
  Device device() const { return def_.device(); }

  // Views the host's tensor as input i. Throws the errors of ForeignView; kOutOfRange for an input
  // that the operator does not have or leaves out.
  void SetInput(int i, const ForeignTensor& tensor);

  // An output before the run: the dtype may be kUndefined, the shape is valid if `known`.
  using Inferred = InferenceCache::Output;
  // Returns the outputs that the inputs decide, valid until the next SetInput. Throws the errors of
  // the operator's inference, with the same text as Run.
  std::span<const Inferred> InferOutputs();

  // Makes Run write output o to the host's tensor. Throws kInvalidArgument if its shape, and
  // kTypeMismatch if its dtype, is not the inferred one. An output without SetOutput gets new
  // memory.
  void SetOutput(int o, const ForeignTensor& tensor);

  // Runs, and returns when the work is done. Throws the errors of ResolvedOperator::Run;
  // kInvalidArgument and kTypeMismatch if the result does not fit an output that the host gives and
  // whose type inference does not know. Such an output is not written to.
  void Run();
  // Runs like Run on an asynchronous device, on the host's stream, and returns when the work is
  // issued. Throws kUnsupported if the device has no streams.
  void Issue(void* native_stream);

  // Returns an output of the run that the host has not given. It never shares the memory of the
  // host's tensors.
  Tensor TakeOutput(int o);
  // Copies an output of the run that the host has not given to the host's tensor. Throws like
  // SetOutput.
  void CopyOutput(int o, const ForeignTensor& tensor);
  // Returns the result, for its dtype and shape, after Run.
  const Tensor& output(int o) const { return results_[Index(o)]; }

  // Forgets all tensors of the call.
  void Release() noexcept;

 private:
  struct GivenOutput {
    ForeignView view;
    bool given = false;
  };
  void CheckOutput(int o, DType dtype, const Shape& shape, const ForeignTensor& found) const;
  void RunOn(bool issue);

  const OpSchema* schema_;
  std::vector<uint8_t> present_;
  ResolvedOperator op_;
  OperatorDef def_;
  InferenceCache inference_;
  bool inferred_ = false;  // in this call
  std::vector<ForeignView> inputs_;
  std::vector<GivenOutput> outputs_;
  std::vector<Tensor> arguments_, results_;  // of ResolvedOperator::Run
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/ready_operator.ipp"
#endif

#endif  // OPKIT_EXPORT_READY_OPERATOR_HPP_
