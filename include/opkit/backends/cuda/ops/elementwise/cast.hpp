// Operators on CUDA that convert or copy elements: Cast, CastLike, BitCast, Identity, Dropout
// without training, ZerosLike.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CAST_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CAST_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_size.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class To>
struct CastElement {
  template <class From>
  OPKIT_DEVICE auto operator()(From x) const {
    if constexpr (std::is_same_v<From, bool>)
      return ConvertElement<To>(static_cast<uint8_t>(x));
    else if constexpr (std::is_same_v<From, float> && kIsHalf<To>)
      return x;  // the loop rounds it
    else
      return ConvertElement<To>(x);
  }
};
template <class T>
struct ConstantElement {
  T value;
  OPKIT_DEVICE T operator()() const { return value; }
};
// Returns a value of the type that Cast writes for To. Integers of one size get the same bits from
// an integer.
template <class From, class To>
constexpr auto TargetOfCast() {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>)
    return std::make_unsigned_t<To>();
  else
    return To();
}

}  // namespace detail

// Cast and CastLike between plain types.
class CastCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  // The output can be in place if its elements have the size of the input's.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<PlainTypes>(query);
    const DType from = query.inputs[0].dtype, to = query.outputs[0].dtype;
    if (!PlainTypes::Has(to))
      throw UnsupportedOperatorFeature(StrCat("it does not convert to ", to));
    KernelConfig config;
    if (ItemSize(from) == ItemSize(to)) config.inplace = {{0, 0}};
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (x.dtype() == y->dtype()) return Copy(x, y), true;
    return Visit<PlainTypes>([&]<class From>() {
      PlainTypes::Visit(y->dtype(), [&]<class To>() {
        using Target = decltype(detail::TargetOfCast<From, To>());
        if constexpr (!std::is_same_v<From, To>)
          Issue<Target, From>(detail::CastElement<Target>(), y, {&x});
      });
    });
  }
};
OPKIT_CUDA_OPERATOR(Cast, CastCUDAOp);
OPKIT_CUDA_OPERATOR(CastLike, CastCUDAOp);

// BitCast: copies the bytes, unless the output is in place.
class CopyCUDAOp : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const DType dtype = query.inputs[0].dtype;
    if (dtype == DType::kUndefined || IsObject(dtype))
      throw UnsupportedOperatorFeature(
          StrCat("it copies numbers, and input 0 is ",
                 dtype == DType::kUndefined ? "not known" : ToString(dtype)));
    return {InplaceConfig(query)};
  }

  bool RunOnDevice() override { return Copy(DenseInput(0), InferredOutput(0)), true; }
};
OPKIT_CUDA_OPERATOR(BitCast, CopyCUDAOp);

// Dropout without training, whose ratio the plan has checked.
class DropoutCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    if (HasValue(query, 2) && !(IsScalar(query, 2) && Number(query, 2) == 0))
      throw UnsupportedOperatorFeature("it drops no elements, and the node may be in training");
    if (HasValue(query, 1) &&
        !(IsScalar(query, 1) && Number(query, 1) >= 0 && Number(query, 1) < 1))
      throw UnsupportedOperatorFeature("the ratio is not a constant from 0 to below 1");
    return {InplaceConfig(query)};
  }

  bool RunOnDevice() override {
    Copy(DenseInput(0), InferredOutput(0));
    if (HasOutput(1)) Issue<uint8_t>(detail::ConstantElement<uint8_t>{1}, InferredOutput(1), {});
    return true;
  }

 private:
  static bool HasValue(const KernelQuery& query, size_t i) {
    return i < query.inputs.size() && !query.def.inputs()[i].empty();
  }
  static bool IsScalar(const KernelQuery& query, size_t i) {
    const Tensor* constant = query.inputs[i].constant;
    return constant && constant->device().type == DeviceType::kCPU && constant->numel() == 1;
  }
  static double Number(const KernelQuery& query, size_t i) {
    double number = -1;
    const Tensor& constant = *query.inputs[i].constant;
    ElementTypes<float, double, float16, bfloat16, bool>::Visit(constant.dtype(), [&]<class T>() {
      number = static_cast<double>(constant.ToVector<T>()[0]);
    });
    return number;
  }
};
OPKIT_CUDA_OPERATOR(Dropout, DropoutCUDAOp);

class ZerosLikeCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() { Issue<T>(detail::ConstantElement<T>{}, y, {}); });
  }
};
OPKIT_CUDA_OPERATOR(ZerosLike, ZerosLikeCUDAOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_CAST_HPP_
