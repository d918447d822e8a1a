// Arithmetic of two or more tensors on CUDA: Add, Sub, Mul, Div, Mod, Pow, PRelu, SwiGLU, Clip,
// Max, Mean, Min, Sum.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_ARITHMETIC_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_ARITHMETIC_HPP_

#include <limits>

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/convert.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_CUDA_BINARY(Add, CUDANumericTypes);
OPKIT_CUDA_BINARY(Sub, CUDANumericTypes);
OPKIT_CUDA_BINARY(Mul, CUDANumericTypes);
OPKIT_CUDA_BINARY(PRelu, FloatTypes);

namespace detail {

// Throws UnsupportedOperatorFeature for a division of integers whose divisor may be 0: the CPU's
// kernel reports a division by zero, and a kernel on the device cannot. For Propose.
inline void RequireDivisors(const KernelQuery& query) {
  if (!IsInteger(query.inputs[0].dtype)) return;
  const Tensor* divisors = query.inputs[1].constant;
  bool may_be_zero = true;
  if (divisors && divisors->device().type == DeviceType::kCPU)
    NumericTypes::Visit(divisors->dtype(),
                        [&]<class T>() { may_be_zero = Contains(divisors->ToVector<T>(), T(0)); });
  if (may_be_zero)
    throw UnsupportedOperatorFeature(
        "a kernel on the device cannot report a division by 0, so the divisor of integers must be "
        "a constant without zeros");
}

// Computes a power of a float in double, unless both types are exact in float.
template <class T, class E>
struct PowElement {
  template <class Base, class Exponent>
  OPKIT_DEVICE auto operator()(Base x, Exponent e) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
      return static_cast<T>(
          IntegerPower(static_cast<uint64_t>(x), static_cast<uint64_t>(e), e < 0));
    } else if constexpr (std::is_same_v<Base, float> && std::is_same_v<Exponent, float>) {
      return e == 2 ? x * x : std::pow(x, e);
    } else {
      return ConvertElement<T>(std::pow(static_cast<double>(x), static_cast<double>(e)));
    }
  }
};

// Clip, with limits in the device's memory, or null.
template <class T>
struct ClipElement {
  const StoredType<T>*low, *high;
  OPKIT_DEVICE ComputeType<T> operator()(ComputeType<T> x) const {
    using Limits = std::numeric_limits<ComputeType<T>>;
    const ComputeType<T> least = low                    ? LoadElement<T>(*low)
                                 : Limits::has_infinity ? -Limits::infinity()
                                                        : Limits::lowest();
    const ComputeType<T> most = high                   ? LoadElement<T>(*high)
                                : Limits::has_infinity ? Limits::infinity()
                                                       : (Limits::max)();
    return Clamp(x, least, most);
  }
};

struct SwiGluElement {
  float alpha;
  template <class C>
  OPKIT_DEVICE C operator()(C gate, C value) const {
    return SwishFunction::Apply(gate, &alpha) * value;
  }
};

}  // namespace detail

class DivCUDAOp final : public CUDABinaryOperator<detail::DivFunction, CUDANumericTypes> {
 public:
  using CUDABinaryOperator::CUDABinaryOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    detail::RequireDivisors(query);
    return ProposeTypes<CUDANumericTypes>(query);
  }
};
OPKIT_CUDA_OPERATOR(Div, DivCUDAOp);

class ModCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  using Types = ElementTypes<float, double, int32_t, int64_t>;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    detail::RequireDivisors(query);
    return ProposeTypes<Types>(query);
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &a = InputBeside(0, *y), &b = InputBeside(1, *y);
    return Visit<Types>([&]<class T>() {
      if (fmod_)
        Issue<T, T, T>(detail::BinaryElement<detail::FmodFunction>(), y, {&a, &b});
      else
        Issue<T, T, T>(detail::BinaryElement<detail::ModFunction>(), y, {&a, &b});
    });
  }

 private:
  const bool fmod_ = GetSingleArgument<int64_t>("fmod") != 0;
};
OPKIT_CUDA_OPERATOR(Mod, ModCUDAOp);

class PowCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  using Exponents = ElementTypes<float, int64_t>;

  // The exponent has the type of the base, or one of Exponents.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<CUDANumericTypes>(query);
    if (query.inputs[1].dtype != query.inputs[0].dtype) RequireTypes<Exponents>(query, 1);
    return {InplaceConfig(query)};
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &a = InputBeside(0, *y), &b = InputBeside(1, *y);
    return Visit<CUDANumericTypes>([&]<class T>() {
      const auto issue = [&]<class E>() {
        Issue<T, T, E>(detail::PowElement<T, E>(), y, {&a, &b});
      };
      if (b.dtype() == a.dtype())
        issue.template operator()<T>();
      else
        Exponents::Visit(b.dtype(), issue);
    });
  }
};
OPKIT_CUDA_OPERATOR(Pow, PowCUDAOp);

class ClipCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<CUDANumericTypes>;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<CUDANumericTypes>([&]<class T>() {
      const auto limit = [&](int i) -> const T* {
        return HasInput(i) ? static_cast<const T*>(Input(i).raw_data()) : nullptr;
      };
      Issue<T, T>(detail::ClipElement<T>{limit(1), limit(2)}, y, {&x});
    });
  }
};
OPKIT_CUDA_OPERATOR(Clip, ClipCUDAOp);

class SwiGLUCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    const Tensor &gate = DenseInput(0), &value = DenseInput(1);
    Tensor* y = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() {
      Issue<T, T, T>(detail::SwiGluElement{GetSingleArgument<float>("alpha")}, y, {&gate, &value});
    });
  }
};
OPKIT_CUDA_OPERATOR(SwiGLU, SwiGLUCUDAOp);

// An operator on any number of inputs of one of Types. Folds them with F, from the first on, by a
// loop for each input after the first. kMean: divides the result by the number of inputs.
template <class F, class Types, bool kMean = false>
class CUDAFoldOperator final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  // Only the inputs that the first loop reads can share memory with the output.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<Types>(query);
    KernelConfig config;
    config.inplace = {{0, 0}};
    if (query.inputs.size() > 1) config.inplace.emplace_back(1, 0);
    return {std::move(config)};
  }
  static constexpr auto& Fuse = detail::FuseElementwise;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& first = InputBeside(0, *y);
    if (InputSize() == 1) return Copy(first, y), true;
    return Visit<Types>([&]<class T>() {
      const Tensor* folded = &first;
      for (int i = 1; i < InputSize(); ++i) {
        Issue<T, T, T>(detail::BinaryElement<F>(), y, {folded, &InputBeside(i, *y)});
        folded = y;
      }
      if constexpr (kMean) {
        const detail::ElementAttributes count = {{static_cast<float>(InputSize())}};
        Issue<T, T>(detail::UnaryElement<detail::DivideByCountFunction>{count}, y, {y});
      }
    });
  }
};
OPKIT_CUDA_OPERATOR(Max, CUDAFoldOperator<detail::MaxFunction, CUDANumericTypes>);
OPKIT_CUDA_OPERATOR(Min, CUDAFoldOperator<detail::MinFunction, CUDANumericTypes>);
// Sum and Mean share the loops of Add.
OPKIT_CUDA_OPERATOR(Sum, CUDAFoldOperator<detail::AddFunction, FloatTypes>);
OPKIT_CUDA_OPERATOR(Mean, CUDAFoldOperator<detail::AddFunction, FloatTypes, true>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_ARITHMETIC_HPP_
