// InferenceCache: shape inference of a node that is run again and again. It is repeated only when
// an input's dtype or shape has changed, or when the result came from an input's data.
#ifndef OPKIT_OP_INFERENCE_CACHE_HPP_
#define OPKIT_OP_INFERENCE_CACHE_HPP_

#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A node's inputs, null where it leaves one out: a view of a vector of Tensor* or const Tensor*. A
// std::span made of either costs every program ten times as much to compile.
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

// One for each operator, whoever infers: the operator itself, an eager call, or a plan.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // where known
  };

  // What is said of the outputs holds for these inputs.
  bool IsFresh(InputPointers inputs) const {
    if (!fresh_) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != seen_[i].dtype || inputs[i]->shape() != seen_[i].shape))
        return false;
    return true;
  }
  // As IsFresh for the inputs that it was asked with last, where those have not changed.
  bool fresh() const { return fresh_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Another whenever the outputs were said anew; 0 before.
  uint64_t version() const { return version_; }

  // `before_data` is called before the first read of an input's elements, which may still be on
  // their way. Nothing is fresh until Keep is called.
  template <class Def>
  OPKIT_COLD void Infer(const Def& def, InputPointers inputs,
                        FunctionRef<void(InferenceContext&)> infer,
                        FunctionRef<void()> before_data) {
    fresh_ = false;
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
      infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    }
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
    infer(context);
    See(inputs.size(), [&](size_t i) {
      return inputs[i] ? Output{inputs[i]->dtype(), true, inputs[i]->shape()} : Output();
    });
    Say(context.outputs());
  }
  // The result is good: it holds until an input changes, unless it came from an input's data.
  void Keep() { fresh_ = !data_read_; }

  // What somebody else has inferred. Nothing changes where a dtype or shape is not known.
  template <class Infos>
  OPKIT_COLD void Set(const OperatorDef& def, const Infos& inputs, const Infos& outputs) {
    if (inputs.size() != def.inputs().size() || outputs.size() != def.outputs().size())
      Throw(ErrorCode::kInvalidArgument, "SetInferredOutputs of operator ", ToString(def), " for ",
            inputs.size(), " inputs and ", outputs.size(), " outputs");
    auto known = [](const Infos& infos, const std::vector<std::string>& names) {
      for (size_t i = 0; i < infos.size(); ++i)
        if (!names[i].empty() &&
            (infos[i].dtype == DType::kUndefined || !infos[i].shape.is_known()))
          return false;
      return true;
    };
    if (!known(inputs, def.inputs()) || !known(outputs, def.outputs())) return;
    See(inputs.size(), [&](size_t i) { return Of(inputs[i]); });
    Say(outputs);
    fresh_ = true;
  }

 private:
  template <class Info>
  static Output Of(const Info& info) {
    const bool known = info.shape.is_known();
    return {info.dtype, known, known ? info.shape.ToShape() : Shape()};
  }
  template <class F>
  void See(size_t inputs, F input) {
    seen_.clear();
    for (size_t i = 0; i < inputs; ++i) seen_.push_back(input(i));
  }
  template <class Infos>
  void Say(const Infos& outputs) {
    outputs_.clear();
    for (const auto& output : outputs) outputs_.push_back(Of(output));
    ++version_;
  }

  std::vector<Output> seen_, outputs_;  // seen: the inputs
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_CACHE_HPP_
