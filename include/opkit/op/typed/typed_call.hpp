// TypedCall: a typed kernel made ready for a node. It reads the node's attributes once, infers
// output shapes when those of the inputs change, and calls the kernel's function. TypedOperator has
// one, and so has an Invoke that needs no operator.
#ifndef OPKIT_OP_TYPED_TYPED_CALL_HPP_
#define OPKIT_OP_TYPED_TYPED_CALL_HPP_

#include <memory>

#include "opkit/op/schema.hpp"
#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The definition that is handed in is always that of the node.
class TypedCall {
 public:
  // Errors: kInvalidArgument where the node leaves out an input or output that is not optional,
  // kNotFound for an attribute without a value, kTypeMismatch for one of another type.
  TypedCall(const TypedKernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // Of the signature: a node may have fewer, where the last ones are optional.
  size_t num_inputs() const { return num_inputs_; }
  // Infers the outputs into `inference`. `wait` is called before the first read of an input's
  // elements, which the device may still be computing. Errors: kUninitialized; those of inference;
  // kInvalidArgument where a shape stays open.
  OPKIT_COLD void Infer(const OperatorDef& def, InputPointers inputs, InferenceCache& inference,
                        FunctionRef<void()> wait) const;
  // The number of the version for the inputs' element type. Error (kTypeMismatch) where there is
  // none; kOutOfRange where it cannot hold an attribute.
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
  // The dtype of an output in that version.
  DType OutputDType(size_t version, size_t output) const {
    const TypedParameter* row = kernel_.rows.data();
    while (!IsOutput(row->kind) || Index(row->place) != output) ++row;
    return row->by_element ? kernel_.versions[version].element : row->dtype;
  }
  // Calls the function on `context`, of the type that it was compiled for. There are num_inputs()
  // inputs, dense, in the standard layout and on the context's device, null where the node leaves
  // one out; outputs have
  // the inferred shapes and the dtypes of OutputDType. `shapes` is the number of the inference
  // (InferenceCache::version). False where the function returns false. Errors: kTypeMismatch,
  // kUninitialized; kUnsupported for a rank past 8; what the function throws.
  bool Run(void* context, size_t version, InputPointers inputs, const Tensor* const* outputs,
           uint64_t shapes);

  // Error (kUnsupported): the input has another layout than the standard one.
  [[noreturn]] OPKIT_COLD void ThrowNotStandard(const OperatorDef& def, size_t i,
                                                const Tensor& input) const;

 private:
  [[noreturn]] OPKIT_COLD void ThrowNoVersion(const OperatorDef& def, InputPointers inputs) const;

  // The slots of a version. `shapes` is the number of the inference that their extents are of.
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

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/typed/impl/typed_call.ipp"
#endif

#endif  // OPKIT_OP_TYPED_TYPED_CALL_HPP_
