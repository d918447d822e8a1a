// Every loop for blocks of small integers gives the same products as plain loops.
#include "opkit/ops/quantized/blocked_product.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace blocked_product_test {
using namespace opkit;

namespace {

void CheckProduct(int64_t rows, int64_t k, int64_t n, int64_t bits, int64_t block) {
  CAPTURE(rows);
  CAPTURE(k);
  CAPTURE(n);
  CAPTURE(bits);
  CAPTURE(block);
  const detail::BlockedLayout layout{n, k, bits, block, (k + block - 1) / block};
  std::mt19937 random(static_cast<unsigned>(rows * 1000 + k * 10 + n));
  std::vector<uint8_t> bytes(static_cast<size_t>(n * layout.blocks * layout.BlockBytes()));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  std::vector<float> a(static_cast<size_t>(rows * k));
  for (float& x : a) x = static_cast<float>(random() % 9) - 4;
  // Numbers, zero points and scales whose products and sums are exact in float32.
  const auto factors = [&](int64_t column, int64_t part, float& zero, float& scale) {
    zero = static_cast<float>((column + part) % 4);
    scale = (column + part) % 3 == 0 ? 0.5f : 2;
  };
  std::vector<float> want;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        float zero = 0, scale = 0;
        factors(column, i / block, zero, scale);
        const uint8_t* from =
            bytes.data() + (column * layout.blocks + i / block) * layout.BlockBytes();
        sum += a[static_cast<size_t>(row * k + i)] *
               ((static_cast<float>(layout.At(from, i % block)) - zero) * scale);
      }
      want.push_back(sum);
    }
  for (const detail::BlockedLoops& loops : detail::AllBlockedLoops()) {
    std::vector<float> found(want.size(), -1);
    detail::BlockedProduct(
        layout, a.data(), rows, bytes.data(), factors,
        [&](int64_t row, int64_t column, float sum) {
          found[static_cast<size_t>(row * n + column)] = sum;
        },
        loops);
    CHECK(found == want);
  }
}

TEST_CASE("all loops multiply alike, for all bits and sizes around their blocks") {
  for (const int64_t bits : {2, 4, 8}) {
    CheckProduct(1, 1, 1, bits, 16);
    CheckProduct(3, 37, 5, bits, 16);
    CheckProduct(6, 64, 8, bits, 32);
    CheckProduct(9, 100, 7, bits, 128);
  }
}

TEST_CASE("rows longer than a part of the cache are multiplied part by part") {
  CheckProduct(2, 512, 4, 4, 32);
  CheckProduct(5, 1033, 37, 4, 64);
  CheckProduct(1, 2500, 2, 2, 2048);  // a block is longer than a part
  CheckProduct(1, 3000, 2, 8, 4096);
}

}  // namespace
}  // namespace blocked_product_test
