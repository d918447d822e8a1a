// InferenceCache: shape inference of a node that is run again and again. It is repeated only when
// an input's dtype or shape has changed, or when the result came from an input's data.
#ifndef OPKIT_OP_INFERENCE_CACHE_HPP_
#define OPKIT_OP_INFERENCE_CACHE_HPP_

#include <span>

#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

using InputPointers = std::span<const Tensor* const>;  // null where the node leaves an input out

class InferenceCache {
 public:
  // The last result that was kept holds for these inputs.
  bool IsFresh(InputPointers inputs) const {
    if (!fresh_) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != seen_[i].dtype || inputs[i]->shape() != seen_[i].shape))
        return false;
    return true;
  }
  // What inference says of the outputs. `before_data` is called before the first read of an input's
  // elements, which may still be on their way. Nothing is fresh until Keep is called.
  OPKIT_COLD std::vector<TensorInfo> Infer(const OpSchema& schema, const OperatorDef& def,
                                           InputPointers inputs, FunctionRef<void()> before_data) {
    fresh_ = false;
    std::vector<TensorInfo> infos;
    std::vector<Seen> seen;
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
      infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    }
    for (const Tensor* input : inputs)
      seen.push_back(input ? Seen{input->dtype(), input->shape()} : Seen());
    data_read_ = false;
    auto data_of = [&](int i) -> const Tensor* {
      const Tensor* input = inputs[static_cast<size_t>(i)];
      if (!input || !input->initialized() || !IsHostAccessible(input->device().type))
        return nullptr;
      if (!data_read_) before_data();
      data_read_ = true;
      return input;
    };
    InferenceContext context(def, std::move(infos));
    context.ReadConstantsFrom(data_of);
    schema.Infer(context);
    seen_ = std::move(seen);
    return std::move(context.outputs());
  }
  // The result is good: it holds until an input changes, unless it came from an input's data.
  void Keep() { fresh_ = !data_read_; }

 private:
  struct Seen {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  std::vector<Seen> seen_;
  bool data_read_ = false;
  bool fresh_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_CACHE_HPP_
