// FourierTransform.
#include "opkit/ops/signal/fourier.hpp"

#include <doctest/doctest.h>

namespace fourier_test {
using namespace opkit;

namespace {

using Complex = std::complex<double>;

TEST_CASE("FourierTransform computes lines of any length, forward and inverse") {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 25, 30, 49, 64, 97, 210}) {
    std::vector<Complex> in;
    for (int64_t j = 0; j < n; ++j)
      in.push_back({static_cast<double>(j * j % 7) - 3, static_cast<double>(j % 5)});
    for (const bool inverse : {false, true}) {
      std::vector<Complex> out(in.size());
      detail::FourierTransform(n, inverse).Run(in.data(), out.data());
      double most = 0;
      for (int64_t k = 0; k < n; ++k) {
        Complex sum = 0;
        for (int64_t j = 0; j < n; ++j)
          sum += in[static_cast<size_t>(j)] *
                 std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi *
                                     static_cast<double>(j * k % n) / static_cast<double>(n));
        most = (std::max)(most, std::abs(sum - out[static_cast<size_t>(k)]));
      }
      CAPTURE(n);
      CHECK(most < 1e-11);
    }
  }
}

}  // namespace
}  // namespace fourier_test
