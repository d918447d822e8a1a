// FourierTransform: the discrete Fourier transform of a line of any length in double. The plain
// kernels of DFT and STFT use it. Source: Cooley and Tukey, "An Algorithm for the Machine
// Calculation of Complex Fourier Series", 1965.
#ifndef OPKIT_OPS_SIGNAL_FOURIER_HPP_
#define OPKIT_OPS_SIGNAL_FOURIER_HPP_

#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <vector>

#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Splits the length n into its prime factors. A line costs n times their sum in complex products,
// so a prime length costs n * n of them.
class FourierTransform {
 public:
  using Real = double;
  using Value = std::complex<double>;

  // Prepares lines of length n, 1 or more. `inverse`: the exponents are positive.
  FourierTransform(int64_t n, bool inverse) : powers_(Index(n)) {
    // Quarters of a turn are exact, so that the parts of simple spectra are exact zeros.
    constexpr Value kQuarters[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    for (int64_t k = 0; k < n; ++k) {
      const double turn = 2 * std::numbers::pi * (static_cast<double>(k) / static_cast<double>(n));
      const Value power =
          k * 4 % n == 0 ? kQuarters[k * 4 / n] : Value(std::cos(turn), std::sin(turn));
      powers_[Index(k)] = inverse ? power : std::conj(power);
    }
    for (int64_t rest = n, p = 2; rest > 1; p = p * p > rest ? rest : p + 1)
      for (; rest % p == 0; rest /= p) factors_.push_back(p);
  }
  // Computes out[k] = sum over j of in[j] * exp(-+2 pi i j k / n). The lines do not overlap.
  void Run(const Value* in, Value* out) const {
    std::vector<Value> parts(Index(factors_.empty() ? 1 : factors_.back()));
    Split(in, out, 1, 0, parts.data());
  }

 private:
  // Transforms the n / stride elements in[0], in[stride], in[2 * stride], ….
  void Split(const Value* in, Value* out, int64_t stride, size_t level, Value* parts) const {
    if (level == factors_.size()) {
      *out = *in;
      return;
    }
    const auto n = static_cast<int64_t>(powers_.size());
    const int64_t p = factors_[level], part = n / stride / p;
    for (int64_t r = 0; r < p; ++r)
      Split(in + r * stride, out + r * part, stride * p, level + 1, parts);
    for (int64_t k = 0; k < part; ++k) {
      for (int64_t r = 0; r < p; ++r) parts[r] = out[r * part + k];
      for (int64_t q = 0; q < p; ++q) {
        const int64_t step = (k + q * part) * stride;  // of the exponents, below n
        double real = 0, imaginary = 0;
        for (int64_t r = 0, at = 0; r < p; ++r) {
          const Value a = parts[r], b = powers_[Index(at)];
          real += a.real() * b.real() - a.imag() * b.imag();
          imaginary += a.real() * b.imag() + a.imag() * b.real();
          at = at + step < n ? at + step : at + step - n;
        }
        out[k + q * part] = {real, imaginary};
      }
    }
  }

  std::vector<Value> powers_;  // exp(-+2 pi i k / n)
  std::vector<int64_t> factors_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_SIGNAL_FOURIER_HPP_
