// Every loop for blocks of small integers gives the same products as plain loops.
#include "opkit/ops/quantized/blocked_product.hpp"

#include "opkit/ops/quantized/blocked_dot.hpp"

#include <doctest/doctest.h>

#include <cmath>
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
  // The largest number of a block makes its scale 1, so that no number is rounded.
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < k; i += block) a[static_cast<size_t>(row * k + i)] = i % 3 ? 127 : -127;
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
  std::vector<float> found(want.size(), -1);
  const auto store = [&](int64_t row, int64_t column, float sum) {
    found[static_cast<size_t>(row * n + column)] = sum;
  };
  detail::BlockedProduct(layout, a.data(), rows, bytes.data(), factors, store);
  CHECK(found == want);
  std::vector<float> scales;
  for (int64_t column = 0; column < n; ++column)
    for (int64_t part = 0; part < layout.blocks; ++part) {
      float zero = 0;
      factors(column, part, zero, scales.emplace_back());
    }
  const auto fill_zeros = [&](int64_t column, float* zeros) {
    float scale = 0;
    for (int64_t part = 0; part < layout.blocks; ++part) factors(column, part, zeros[part], scale);
  };
  const detail::BlockedDotLoops loops(bits);
  if (loops.unpack) {
    found.assign(want.size(), -1);
    detail::BlockedPanels(layout, a.data(), rows, bytes.data(), scales.data(), true, fill_zeros,
                          store, loops);
    CHECK(found == want);
  }
  for (const bool as_bytes : {false, true}) {
    CAPTURE(as_bytes);
    const detail::BlockedDotLoop loop = as_bytes ? loops.bytes : loops.floats;
    if (!loop) continue;
    found.assign(want.size(), -1);
    detail::BlockedRows reordered;
    detail::ReorderRows(layout, a.data(), rows, as_bytes, loops.reorder, reordered);
    detail::BlockedDot(layout, reordered, rows, bytes.data(), scales.data(), true, fill_zeros,
                       store, loop);
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
  CheckProduct(130, 40, 3, 4, 32);    // more rows than are multiplied with a panel at once
  CheckProduct(1, 2500, 2, 2, 2048);  // a block is longer than a part
  CheckProduct(1, 3000, 2, 8, 4096);
}

TEST_CASE("NaN, infinity and zeros of a rounded row stay") {
  const detail::BlockedLayout layout{1, 32, 4, 16, 2};
  const detail::BlockedDotLoops loops(4);
  if (!loops.bytes) return;
  const std::vector<uint8_t> bytes(16, 0x99);  // 9 - 8 each
  const std::vector<float> scales(2, 1.f);
  for (const float special : {NAN, INFINITY, 0.f}) {
    CAPTURE(special);
    std::vector<float> a(32);
    a[20] = special;
    float found = -1;
    detail::BlockedRows reordered;
    detail::ReorderRows(layout, a.data(), 1, true, loops.reorder, reordered);
    detail::BlockedDot(
        layout, reordered, 1, bytes.data(), scales.data(), false, [](int64_t, float*) {},
        [&](int64_t, int64_t, float sum) { found = sum; }, loops.bytes);
    CHECK(std::isfinite(found) == (special == 0));
  }
}

}  // namespace
}  // namespace blocked_product_test
