// Comparisons, logic, operators on bits and Where on CUDA.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOGIC_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOGIC_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/element_size.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_CUDA_BINARY(And, ElementTypes<bool>, bool);
OPKIT_CUDA_BINARY(Equal, ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, bool>,
                  bool);
OPKIT_CUDA_BINARY(Greater, CUDANumericTypes, bool);
OPKIT_CUDA_BINARY(GreaterOrEqual, CUDANumericTypes, bool);
OPKIT_CUDA_BINARY(Less, CUDANumericTypes, bool);
OPKIT_CUDA_BINARY(LessOrEqual, CUDANumericTypes, bool);
OPKIT_CUDA_BINARY(Or, ElementTypes<bool>, bool);
OPKIT_CUDA_BINARY(Xor, ElementTypes<bool>, bool);

namespace detail {

template <class Word>
struct WhereElement {
  OPKIT_DEVICE Word operator()(uint8_t condition, Word x, Word y) const {
    return condition ? x : y;
  }
};

}  // namespace detail

// Chooses between elements without regard to their dtype: one kernel serves each element size.
class WhereCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireDTypes(query, 1, AllDTypes());
    return {InplaceConfig(query)};
  }

  bool RunOnDevice() override {
    Tensor* out = InferredOutput(0);
    const Tensor &condition = InputBeside(0, *out), &x = InputBeside(1, *out),
                 &y = InputBeside(2, *out);
    return detail::WithElementOfSize(ItemSize(out->dtype()), [&](auto element) {
      using Word = decltype(element);
      Issue<Word, uint8_t, Word, Word>(detail::WhereElement<Word>(), out, {&condition, &x, &y});
    });
  }
};
OPKIT_CUDA_OPERATOR(Where, WhereCUDAOp);

// An operator on the bits of one or two integers of a type. One kernel serves each element size.
template <template <class> class Element, class F, int kInputs>
class CUDABitOperator final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  using Types =
      ElementTypes<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    return Visit<Types>([&]<class T>() {
      using Bits = std::make_unsigned_t<T>;
      if constexpr (kInputs == 1)
        Issue<Bits, Bits>(Element<F>(), y, {&DenseInput(0)});
      else
        Issue<Bits, Bits, Bits>(Element<F>(), y, {&InputBeside(0, *y), &InputBeside(1, *y)});
    });
  }
};
#define OPKIT_CUDA_BITWISE(name, Element, inputs) \
  OPKIT_CUDA_OPERATOR(name, CUDABitOperator<detail::Element, detail::name##Function, inputs>)
OPKIT_CUDA_BITWISE(BitwiseAnd, BinaryElement, 2);
OPKIT_CUDA_BITWISE(BitwiseNot, UnaryElement, 1);
OPKIT_CUDA_BITWISE(BitwiseOr, BinaryElement, 2);
OPKIT_CUDA_BITWISE(BitwiseXor, BinaryElement, 2);
#undef OPKIT_CUDA_BITWISE

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOGIC_HPP_
