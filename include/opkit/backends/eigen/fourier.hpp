// DFT and STFT of float32 and float64 for the "eigen" backend, with the FFT of Eigen's unsupported
// modules (kissfft). Its mixed radices compute a line of n numbers in about n log n steps.
#ifndef OPKIT_BACKENDS_EIGEN_FOURIER_HPP_
#define OPKIT_BACKENDS_EIGEN_FOURIER_HPP_

#include <limits>

#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/ops/signal/stft.hpp"

#include <unsupported/Eigen/FFT>

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Computes lines as FourierTransform does, in the precision of the elements.
template <class T>
class EigenFourier {
 public:
  using Real = T;
  using Value = std::complex<T>;

  EigenFourier(int64_t n, bool inverse) : n_(n), inverse_(inverse) {
    if (n > (std::numeric_limits<int>::max)())
      Throw(ErrorCode::kUnsupported, "Eigen's FFT has no lines of ", n, " numbers");
    fft_.SetFlag(Eigen::FFT<T>::Unscaled);
    // A first line makes Eigen prepare the length, so that copies need not.
    std::vector<Value> in(Index(n)), out(Index(n));
    Run(in.data(), out.data());
  }
  void Run(const Value* in, Value* out) {
    if (n_ == 1)
      *out = *in;  // Eigen 3.4.0 crashes on it
    else
      inverse_ ? fft_.inv(out, in, n_) : fft_.fwd(out, in, n_);
  }

 private:
  Eigen::FFT<T> fft_;
  int64_t n_;
  bool inverse_;
};

// The kernel of an operator whose plain kernel is a template of the transform.
template <template <template <class> class, class> class Op>
class FourierEigenOp final : public Op<EigenFourier, ElementTypes<float, double>> {
 public:
  using Base = Op<EigenFourier, ElementTypes<float, double>>;
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireDTypes(query, 0, {DType::kFloat32, DType::kFloat64});
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    RequireDTypes(*this, kEigenBackend, {DType::kFloat32, DType::kFloat64});
    return Base::RunOnDevice();
  }
};

}  // namespace detail

using DftEigenOp = detail::FourierEigenOp<DftOp>;
using StftEigenOp = detail::FourierEigenOp<StftOp>;
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(DFT, eigen, DftEigenOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(STFT, eigen, StftEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_FOURIER_HPP_
