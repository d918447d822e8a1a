// TypedCall: a typed kernel that is prepared for a node. It reads the node's attributes once,
// infers output shapes when the inputs' shapes change, and calls the kernel's function.
// TypedOperator and DirectCall use it.
#ifndef OPKIT_OP_TYPED_TYPED_CALL_HPP_
#define OPKIT_OP_TYPED_TYPED_CALL_HPP_

#include <memory>

#include "opkit/op/schema.hpp"
#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A typed kernel, prepared for one node. Every `def` argument must be the node's definition.
class TypedCall {
 public:
  // Throws kInvalidArgument if the node leaves out a required input or output; kNotFound for an
  // attribute without a value; kTypeMismatch for an attribute of another type.
  TypedCall(const TypedKernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // Returns the signature's number of inputs; a node may have fewer inputs if the last inputs are
  // optional.
  size_t num_inputs() const { return num_inputs_; }
  // Infers the outputs into `inference`. Calls `wait` before the first read of an input's elements,
  // because the device may still be computing them. Throws kUninitialized; the errors of inference;
  // kInvalidArgument if inference does not find the whole shape of an output.
  OPKIT_COLD void Infer(const OperatorDef& def, InputPointers inputs, InferenceCache& inference,
                        FunctionRef<void()> wait) const;
  // Returns the index of the version for the inputs' element type. Throws kTypeMismatch if there is
  // none; kOutOfRange if the element type cannot hold an attribute.
  size_t VersionFor(const OperatorDef& def, InputPointers inputs) const {
    if (kernel_.element_input < 0) return 0;
    const DType dtype = inputs[Index(kernel_.element_input)]->dtype();
    for (size_t v = 0; v < kernel_.versions.size(); ++v)
      if (kernel_.versions[v].element == dtype) {
        if (!states_[v].refused.empty()) [[unlikely]]
          Throw(ErrorCode::kOutOfRange, states_[v].refused);
        return v;
      }
    ThrowNoVersion(def, inputs);
  }
  // Returns the dtype of an output in that version.
  DType OutputDType(size_t version, size_t output) const {
    const TypedParameter* row = kernel_.rows.data();
    while (!IsOutput(row->kind) || Index(row->place) != output) ++row;
    return row->by_element ? kernel_.versions[version].element : row->dtype;
  }
  // Calls the function. `context` has the type for which the function was compiled. `inputs` has
  // num_inputs() tensors, dense, in the standard layout and on the context's device; null if the
  // node leaves the input out. `outputs` have the inferred shapes and the dtypes of OutputDType.
  // `shapes` is InferenceCache::version. Returns false if the function returns false. Throws
  // kTypeMismatch, kUninitialized; kUnsupported for a rank past 8; the exceptions of the function.
  bool Run(void* context, size_t version, InputPointers inputs, const Tensor* const* outputs,
           uint64_t shapes);

  // Throws kUnsupported for an input in another layout than the standard one.
  [[noreturn]] OPKIT_COLD void ThrowNotStandard(const OperatorDef& def, size_t i,
                                                const Tensor& input) const;

 private:
  [[noreturn]] OPKIT_COLD void ThrowNoVersion(const OperatorDef& def, InputPointers inputs) const;

  // The slots of a version. `shapes` is the inference version of the extents in the slots.
  struct State {
    std::unique_ptr<TypedSlot[]> slots;
    uint64_t shapes = 0;
    std::string refused;  // why an attribute does not fit the element type
  };
  const TypedKernel& kernel_;
  const OpSchema& schema_;
  std::unique_ptr<State[]> states_;
  size_t num_inputs_ = 0;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/typed/impl/typed_call.ipp"
#endif

#endif  // OPKIT_OP_TYPED_TYPED_CALL_HPP_
