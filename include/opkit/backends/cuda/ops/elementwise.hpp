// Operators on CUDA that compute each element of the output from one element of each broadcast
// input. The functions of one element are those of the CPU's reference kernels.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/nn/activation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The numbers of an operator's attributes, copied to the device.
struct ElementAttributes {
  float numbers[2] = {};
};

// y = F::Apply(x, attributes).
template <class F, class T>
struct CUDAUnaryLoop {
  const StoredType<T>* x;
  StoredType<T>* y;
  ElementAttributes attributes;
  OPKIT_DEVICE void operator()(int64_t i) const {
    y[i] = static_cast<StoredType<T>>(F::Apply(LoadElement<T>(x[i]), attributes.numbers));
  }
};
// y = F::Apply(a, b), where a and b are dense (kFlat), or broadcast.
template <class F, class T, class R, bool kFlat>
struct CUDABinaryLoop {
  const StoredType<T>*a, *b;
  StoredType<R>* y;
  int64_t step_a, step_b;  // of the flat loop: 1, or 0 if one element is used for all
  BroadcastIndex index;    // of the other
  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t from[2] = {i * step_a, i * step_b};
    if constexpr (!kFlat) index.Find<2>(i, from);
    y[i] = static_cast<StoredType<R>>(
        F::Apply(LoadElement<T>(a[from[0]]), LoadElement<T>(b[from[1]])));
  }
};

}  // namespace detail

template <class F, class Types>
class CUDAUnaryOperator final : public CUDAStandardOperator {
 public:
  CUDAUnaryOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : CUDAStandardOperator(def, ws, config) {
    for (int i = 0; const detail::AttributeSchema& attribute : schema().attributes())
      attributes_.numbers[i++] = Arg<float>(attribute.name);
  }
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<Types>([&]<class T>() {
      using Stored = detail::StoredType<T>;
      ParallelFor(
          context_, x.numel(),
          detail::CUDAUnaryLoop<F, T>{static_cast<const Stored*>(x.raw_data()),
                                      static_cast<Stored*>(y->raw_mutable_data()), attributes_});
    });
  }

 private:
  detail::ElementAttributes attributes_;
};

// The output is of type Result; void stands for the inputs' type.
template <class F, class Types, class Result = void>
class CUDABinaryOperator final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &a = InputBeside(0, *y), &b = InputBeside(1, *y);
    return Visit<Types>([&]<class T>() {
      using R = std::conditional_t<std::is_void_v<Result>, T, Result>;
      const auto launch = [&]<bool kFlat>() {
        detail::CUDABinaryLoop<F, T, R, kFlat> loop;
        loop.a = static_cast<const detail::StoredType<T>*>(a.raw_data());
        loop.b = static_cast<const detail::StoredType<T>*>(b.raw_data());
        loop.y = static_cast<detail::StoredType<R>*>(y->raw_mutable_data());
        loop.step_a = a.numel() != 1;
        loop.step_b = b.numel() != 1;
        if constexpr (!kFlat)
          loop.index = detail::BroadcastIndex::Of(
              y->shape(),
              {BroadcastStrides(a.shape(), y->shape()), BroadcastStrides(b.shape(), y->shape())});
        ParallelFor(context_, y->numel(), loop);
      };
      const auto is_flat = [&](const Tensor& x) {
        return x.numel() == 1 || x.numel() == y->numel();
      };
      if (is_flat(a) && is_flat(b))
        launch.template operator()<true>();
      else
        launch.template operator()<false>();
    });
  }
};

#define OPKIT_CUDA_UNARY(name, Types) \
  OPKIT_CUDA_OPERATOR(name, CUDAUnaryOperator<detail::name##Function, Types>)
#define OPKIT_CUDA_BINARY(name, ...) \
  OPKIT_CUDA_OPERATOR(name, CUDABinaryOperator<detail::name##Function, __VA_ARGS__>)

OPKIT_CUDA_UNARY(Abs, NumericTypes);
OPKIT_CUDA_UNARY(Exp, FloatTypes);
OPKIT_CUDA_UNARY(Relu, NumericTypes);
OPKIT_CUDA_BINARY(Add, NumericTypes);
OPKIT_CUDA_BINARY(Mul, NumericTypes);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_HPP_
