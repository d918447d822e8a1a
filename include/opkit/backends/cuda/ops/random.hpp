// RandomNormal, RandomUniform and their Like forms on CUDA. The random bits of an element are those
// of the CPU's kernels, so a seed gives the same uniform numbers on every device. Normal numbers
// may differ in the last place, as far as the logarithm and the cosine of the devices do.
#ifndef OPKIT_BACKENDS_CUDA_OPS_RANDOM_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_RANDOM_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/random/random_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y[i] = mean + scale * a number with mean 0 and variance 1.
template <class T>
struct CUDANormalLoop {
  Philox random;
  double mean, scale;
  T* y;
  OPKIT_DEVICE void operator()(int64_t i) const {
    y[i] = static_cast<T>(mean + scale * random.At(static_cast<uint64_t>(i)).Normal());
  }
};
// y[i] = low + range * a number in [0, 1).
template <class T>
struct CUDAUniformLoop {
  Philox random;
  double low, range;
  T* y;
  OPKIT_DEVICE void operator()(int64_t i) const {
    y[i] = static_cast<T>(low + range * random.At(static_cast<uint64_t>(i)).Uniform());
  }
};

}  // namespace detail

// Computes a + b * number, a and b the numbers of two attributes.
template <template <class> class Loop, bool kNormal>
class CUDARandomOperator final : public RandomOperatorOn<CUDAContext> {
 public:
  using Types = ElementTypes<float, double>;

  using RandomOperatorOn::RandomOperatorOn;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (!Types::Has(query.outputs[0].dtype))
      throw UnsupportedOperatorFeature("it makes numbers of float32 and float64");
    return {KernelConfig()};
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Philox random = NextRun();
    const double first = static_cast<double>(Arg<float>(kNormal ? "mean" : "low"));
    const double second = static_cast<double>(Arg<float>(kNormal ? "scale" : "high"));
    Types::Visit(y->dtype(), [&]<class T>() {
      ParallelFor(context_, y->numel(),
                  Loop<T>{random, first, kNormal ? second : second - first, y->mutable_data<T>()});
    });
    return true;
  }
};

using CUDARandomNormal = CUDARandomOperator<detail::CUDANormalLoop, true>;
using CUDARandomUniform = CUDARandomOperator<detail::CUDAUniformLoop, false>;
OPKIT_CUDA_OPERATOR(RandomNormal, CUDARandomNormal);
OPKIT_CUDA_OPERATOR(RandomNormalLike, CUDARandomNormal);
OPKIT_CUDA_OPERATOR(RandomUniform, CUDARandomUniform);
OPKIT_CUDA_OPERATOR(RandomUniformLike, CUDARandomUniform);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_RANDOM_HPP_
