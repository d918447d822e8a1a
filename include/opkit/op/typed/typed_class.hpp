// TypedOperator: the operator class of typed kernels, one class for each context. Graphs,
// workspaces, streams, observers and CreateOperator run a typed kernel through it.
#ifndef OPKIT_OP_TYPED_TYPED_CLASS_HPP_
#define OPKIT_OP_TYPED_TYPED_CLASS_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/typed/typed_call.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class Context>
class TypedOperator final : public Operator<Context> {
 public:
  // Throws the errors of TypedCall.
  TypedOperator(const TypedKernel& kernel, const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws),
        call_(kernel, OpRegistry::Global().GetSchema(def.type()), def),
        inputs_(call_.num_inputs()),
        outputs_(def.outputs().size()) {
    this->set_invocation_kind(Invocation::Kind::kCustomOperator);
  }

 private:
  bool InfersOutputs() const final { return true; }
  bool RunOnDevice() final {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!this->HasInput(static_cast<int>(i))) continue;
      const Tensor& input = this->Input(static_cast<int>(i));
      if (!input.layout().is_standard()) [[unlikely]]
        call_.ThrowNotStandard(this->def(), i, input);
      inputs_[i] = &input;
    }
    InferenceCache& inference = this->inference();
    if (!inference.IsFresh(inputs_)) [[unlikely]]
      call_.Infer(this->def(), inputs_, inference, [&] {
        if constexpr (Context::kAsynchronous) this->context_.FinishDeviceComputation();
      });
    const size_t version = call_.VersionFor(this->def(), inputs_);
    for (int o = 0; o < static_cast<int>(outputs_.size()); ++o)
      outputs_[Index(o)] = this->Output(o, inference.outputs()[Index(o)].shape,
                                        call_.OutputDType(version, Index(o)));
    return call_.Run(&this->context_, version, inputs_, outputs_.data(), inference.version());
  }

  TypedCall call_;
  std::vector<const Tensor*> inputs_;  // the current run's; null for an input that is left out
  std::vector<const Tensor*> outputs_;
};

template <class Context>
std::unique_ptr<OperatorBase> MakeTypedOperator(const TypedKernel& kernel, const OperatorDef& def,
                                                Workspace* ws) {
  return std::make_unique<TypedOperator<Context>>(kernel, def, ws);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_CLASS_HPP_
