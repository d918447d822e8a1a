// Where: chooses between two tensors, element by element. Source:
// https://onnx.ai/onnx/operators/onnx__Where.html, opset 21.
#ifndef OPKIT_OPS_WHERE_HPP_
#define OPKIT_OPS_WHERE_HPP_

#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class Word>
void RunWhere(const ElementRun& run) {
  const auto* condition = static_cast<const uint8_t*>(run.in[0]);
  const auto* x = static_cast<const Word*>(run.in[1]);
  const auto* y = static_cast<const Word*>(run.in[2]);
  auto* out = static_cast<Word*>(run.out);
  for (int64_t i = 0; i < run.n; ++i)
    out[i] = condition[i * run.step[0]] ? x[i * run.step[1]] : y[i * run.step[2]];
}

}  // namespace detail

// Copies elements without regard to their dtype: one kernel serves each element size.
class WhereOp : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override {
    ElementKernel found = nullptr;
    detail::WithElementOfSize(ItemSize(Input(1).dtype()),
                              [&](auto element) { found = &detail::RunWhere<decltype(element)>; });
    return found;
  }
};

OPKIT_NODE_GRADIENT(Where) {
  const std::string zero = Number(0, GO(0));
  GiveSummed(1, Node("Where", {I(0), GO(0), zero}));
  GiveSummed(2, Node("Where", {I(0), zero, GO(0)}));
}

OPKIT_STANDARD_OPERATOR(Where, kMaker, MovingStrings<WhereOp, 1>)
    .Doc("The output is X where the condition is true, else Y. Inputs are broadcast as in NumPy.")
    .NumInputs(3)
    .Input(0, "condition", "which to take", {DType::kBool})
    .Input(1, "X", "where it is true", WithStrings(AllDTypes()))
    .Input(2, "Y", "where it is false, of the type of X", WithStrings(AllDTypes()))
    .Output(0, "output", "of the type of X, of the shape that the inputs are broadcast to",
            WithStrings(AllDTypes()))
    .Inplace({{1, 0}, {2, 0}})
    .PointwiseCost(1)
    .TestInputs([](DType dtype, uint64_t seed) {
      const std::vector<Shape> shapes = detail::BroadcastTestShapes(seed);
      std::vector<Tensor> inputs =
          detail::MakeTestInputs({shapes[0], shapes[1]}, dtype, seed, 1, 5);
      inputs.insert(inputs.begin(),
                    detail::MakeTestInputs({shapes[1]}, DType::kBool, seed, 0, 1)[0]);
      return inputs;
    })
    .Infer([](InferenceContext& c) {
      const DType dtype = ExpectSameDType(c, 1);
      c.SetOutput(0, dtype, detail::BroadcastInputs(c, 3));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_WHERE_HPP_
