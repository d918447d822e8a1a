// InferenceCache: what shape inference found for a node that is run again and again. Inference is
// repeated only when an input's dtype or shape has changed, or when the result came from its data.
#ifndef OPKIT_OP_INFERENCE_CACHE_HPP_
#define OPKIT_OP_INFERENCE_CACHE_HPP_

#include <span>

#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A node's inputs, null where it leaves one out: a view of a vector of Tensor* or const Tensor*.
class InputPointers {
 public:
  template <class Vector>
  InputPointers(const Vector& inputs) : begin_(inputs.data()), size_(inputs.size()) {}
  size_t size() const { return size_; }
  const Tensor* operator[](size_t i) const { return begin_[i]; }

 private:
  const Tensor* const* begin_;
  size_t size_;
};

// Each operator has one, which the operator itself, an eager call or a plan fills.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // where known
  };

  // True when outputs() holds for these inputs.
  bool IsFresh(InputPointers inputs) const {
    if (!fresh_) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != inputs_[i].dtype || inputs[i]->shape() != inputs_[i].shape))
        return false;
    return true;
  }
  // As IsFresh, for a caller that knows its inputs to be those of the last IsFresh, unchanged.
  bool fresh() const { return fresh_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Incremented whenever outputs are recomputed; 0 before.
  uint64_t version() const { return version_; }

  // Runs `infer` and records the outputs. `before_data` is called before the first read of an
  // input's elements, which the device may still be computing. Nothing is fresh until Keep is
  // called.
  void Infer(const OperatorDef& def, InputPointers inputs,
             FunctionRef<void(InferenceContext&)> infer, FunctionRef<void()> before_data);
  // The caller accepts the result: it holds until an input changes, or for this run alone where it
  // came from an input's data.
  void Keep() { fresh_ = !data_read_; }

  // Takes over what a plan has inferred. Nothing changes where a dtype or shape is not known.
  void Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
           std::span<const TensorInfo> outputs);

 private:
  void RecordInputs(const TensorInfo* infos, size_t count);
  void RecordOutputs(const TensorInfo* infos, size_t count);

  std::vector<Output> inputs_, outputs_;
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/inference_cache.ipp"
#endif

#endif  // OPKIT_OP_INFERENCE_CACHE_HPP_
