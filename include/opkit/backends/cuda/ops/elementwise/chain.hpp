// FusedElementwise: a chain of elementwise operators that one loop computes on CUDA. Only plans
// make nodes of it (steps.hpp).
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CHAIN_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CHAIN_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/math/element_functions.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Computes the chain in float.
template <class T>
struct ChainLoop {
  static constexpr int kCount = VectorCount({sizeof(T)});
  static constexpr bool kBroadcasts = true;
  using Numbers = CUDAVector<float, kCount>;

  ElementChain chain;
  T* y = nullptr;
  uint32_t size = 0;
  bool is_aligned = false, in_rows = false;
  ElementSource x[BroadcastIndex::kMaxInputs] = {};
  BroadcastIndex index = {};

  OPKIT_DEVICE void operator()(int64_t thread) const {
    const uint32_t first = static_cast<uint32_t>(thread) * kCount;
    const int count = size - first < kCount ? static_cast<int>(size - first) : kCount;
    Numbers result = Load(0, first, count);
    for (int i = 0, input = 1; i < chain.count; ++i) {
      const ElementChain::Step& step = chain.steps[i];
      if (step.is_binary)
        Apply(step, result, Load(input++, first, count));
      else
        Apply(step, result);
    }
    CUDAVector<T, kCount> out;
    for (int j = 0; j < kCount; ++j)
      out.elements[j] = static_cast<StoredType<T>>(result.elements[j]);
    StoreRow(out, y + first, is_aligned, count);
  }

 private:
  OPKIT_DEVICE Numbers Load(int input, uint32_t first, int count) const {
    if (in_rows) return LoadRow<T, kCount>(x[input], index.FindInput(first, input), count);
    const auto* data = reinterpret_cast<const T*>(x[input].data);
    Numbers out;
    for (int j = 0; j < kCount; ++j) {
      const uint32_t at = first + static_cast<uint32_t>(j < count ? j : count - 1);
      out.elements[j] = LoadElement<T>(data[index.FindInput(at, input)]);
    }
    return out;
  }
  static OPKIT_DEVICE void Apply(const ElementChain::Step& step, Numbers& x) {
    switch (step.function) {
#define OPKIT_APPLY_STEP(name)                                                       \
  case StepFunction::k##name:                                                        \
    for (int j = 0; j < kCount; ++j)                                                 \
      x.elements[j] = name##Function::Apply(x.elements[j], step.attributes.numbers); \
    break;
      OPKIT_APPLY_STEP(Abs)
      OPKIT_APPLY_STEP(Elu)
      OPKIT_APPLY_STEP(Erf)
      OPKIT_APPLY_STEP(Exp)
      OPKIT_APPLY_STEP(Gelu)
      OPKIT_APPLY_STEP(HardSigmoid)
      OPKIT_APPLY_STEP(HardSwish)
      OPKIT_APPLY_STEP(LeakyRelu)
      OPKIT_APPLY_STEP(Log)
      OPKIT_APPLY_STEP(Neg)
      OPKIT_APPLY_STEP(Reciprocal)
      OPKIT_APPLY_STEP(Relu)
      OPKIT_APPLY_STEP(Sigmoid)
      OPKIT_APPLY_STEP(Softplus)
      OPKIT_APPLY_STEP(Sqrt)
      OPKIT_APPLY_STEP(Swish)
      OPKIT_APPLY_STEP(Tanh)
#undef OPKIT_APPLY_STEP
      default:
        break;
    }
  }
  static OPKIT_DEVICE void Apply(const ElementChain::Step& step, Numbers& x,
                                 const Numbers& operand) {
    // A choice between references would place the numbers in memory.
    const bool is_swapped = step.is_swapped;
    switch (step.function) {
#define OPKIT_APPLY_STEP(name)                                                                     \
  case StepFunction::k##name:                                                                      \
    for (int j = 0; j < kCount; ++j) {                                                             \
      const float mine = x.elements[j], other = operand.elements[j];                               \
      x.elements[j] = name##Function::Apply(is_swapped ? other : mine, is_swapped ? mine : other); \
    }                                                                                              \
    break;
      OPKIT_APPLY_STEP(Add)
      OPKIT_APPLY_STEP(Div)
      OPKIT_APPLY_STEP(Max)
      OPKIT_APPLY_STEP(Min)
      OPKIT_APPLY_STEP(Mul)
      OPKIT_APPLY_STEP(Sub)
#undef OPKIT_APPLY_STEP
      default:
        break;
    }
  }
};

}  // namespace detail

class FusedElementwiseCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    throw UnsupportedOperatorFeature("only plans make it, of nodes that were selected");
  }
  static constexpr auto& Fuse = detail::FuseElementwise;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    std::vector<const Tensor*> inputs;
    for (int i = 0; i < InputSize(); ++i) inputs.push_back(&InputBeside(i, *y));
    return Visit<ElementTypes<float, float16, bfloat16>>([&]<class T>() {
      detail::IssueLoop(context_, detail::ChainLoop<T>{chain_},
                        detail::ElementwiseWork::Of(y, inputs));
    });
  }

 private:
  const detail::ElementChain chain_ = detail::ElementChain::Of(def());
};

OPKIT_OPERATOR_SCHEMA(FusedElementwise)
    .Doc("A chain of elementwise operators: each step computes the result of the one before it.")
    .Private()
    .NumInputs(1, detail::BroadcastIndex::kMaxInputs)
    .NumOutputs(1)
    .Input(0, "X", "the input of the first step; behind it the operands of the binary steps")
    .Output(0, "Y", "of the shape that the inputs are broadcast to")
    .Arg<std::vector<std::string>>("steps", "the types of the operators")
    .Arg<std::vector<int64_t>>("swapped", "1 for a step whose operand is its first argument")
    .Arg<std::vector<float>>("numbers", "two numbers for each step, the operator's attributes")
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      const DType dtype = ExpectSameDType(c);
      SymbolicShape shape = c.input_shape(0);
      for (int i = 1; i < c.num_inputs(); ++i) shape = BroadcastShape(shape, c.input_shape(i));
      c.SetOutput(0, dtype, shape);
    });
OPKIT_CUDA_OPERATOR(FusedElementwise, FusedElementwiseCUDAOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CHAIN_HPP_
