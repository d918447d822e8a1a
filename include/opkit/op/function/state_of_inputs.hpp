// StateOfInputs: the state of an operator whose setCreateOpState wants the shapes and types of its
// inputs. They are known in a run, not when the operator is made.
#ifndef OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_
#define OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/function/stateful_op.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The shapes of inputs or outputs. An extent of -1 is unknown. An empty shape means a scalar, or
// during inference a shape of unknown rank.
using ShapeVectors = std::vector<std::vector<int64_t>>;

namespace detail {

// Makes the author's state in the first run, from the tensors of that run, and again in a run whose
// inputs have other shapes or types. Each run runs that state.
class StateOfInputs final : public StatefulOp {
 public:
  using MakeFunction = UniqueFunction<OpStatus(
      const ShapeVectors& shapes, const std::vector<DType>& types, IntrusivePtr<StatefulOp>& made)>;

  explicit StateOfInputs(MakeFunction make) : make_(std::move(make)) {}
  // If no state can be made, the run fails, and the operator keeps the state that it has.
  OPKIT_INLINE OpStatus Run(FunctionPass pass, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource& resource) override;

 private:
  // True if the state was made for these inputs.
  bool Fits(std::span<const OpTensor> inputs) const;
  OpStatus Make(std::span<const OpTensor> inputs);

  MakeFunction make_;
  ShapeVectors shapes_;
  std::vector<DType> types_;
  IntrusivePtr<StatefulOp> state_;
  // The states that earlier runs have used, while work of these runs may be left.
  std::vector<IntrusivePtr<StatefulOp>> replaced_;
  const opkit_call* calls_[2] = {};  // the last run of each pass
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/function/impl/state_of_inputs.ipp"
#endif

#endif  // OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_
