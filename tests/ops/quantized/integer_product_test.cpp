// Every loop for dot products gives the same sums as three plain loops, and every loop that
// quantises them the same bytes as Quantize.
#include "opkit/ops/quantized/integer_product.hpp"

#include <doctest/doctest.h>

#include <random>

namespace integer_product_test {
using namespace opkit;

namespace {

int64_t Value(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : byte; }

void CheckProduct(int64_t m, int64_t k, int64_t n, bool a_signed, bool b_signed, bool lines) {
  CAPTURE(m);
  CAPTURE(k);
  CAPTURE(n);
  CAPTURE(a_signed);
  CAPTURE(b_signed);
  std::mt19937 random(static_cast<unsigned>(m * 1000 + k * 10 + n));
  std::vector<uint8_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  // Extremes are often next to each other: sums of 16 bits would overflow.
  for (auto* bytes : {&a, &b})
    for (uint8_t& byte : *bytes) byte = random() % 3 ? (random() % 2 ? 255 : 127) : random() % 256;
  std::vector<int32_t> a_zero, b_zero;
  for (int64_t i = 0; i < (lines ? m : 1); ++i)
    a_zero.push_back(static_cast<int32_t>(i * 7 % 128 - (a_signed ? 64 : 0)));
  for (int64_t i = 0; i < (lines ? n : 1); ++i)
    b_zero.push_back(static_cast<int32_t>(i * 5 % 128 - (b_signed ? 64 : 0)));
  std::vector<int32_t> want;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (Value(a[static_cast<size_t>(i * k + l)], a_signed) - a_zero[lines ? i : 0]) *
               (Value(b[static_cast<size_t>(l * n + j)], b_signed) - b_zero[lines ? j : 0]);
      want.push_back(static_cast<int32_t>(sum));
    }
  detail::PackedRows rows;
  rows.Resize(m, k);
  for (int64_t i = 0; i < m; ++i) rows.Set(i, a.data() + i * k, k, a_signed);
  detail::PackedColumns columns;
  columns.Pack({b.data(), k, n, b_signed});
  const detail::IntegerProduct product{
      rows, columns, m, {a_zero.data(), lines}, {b_zero.data(), lines}, a_signed, b_signed};
  for (const detail::IntegerLoops& loops : detail::AllIntegerLoops()) {
    std::vector<int32_t> found(want.size(), -1);
    product.Run(
        [&](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
          for (int64_t j = 0; j < count; ++j)
            found[static_cast<size_t>(row * n + column + j)] = sums[j];
        },
        loops);
    CHECK(found == want);
  }
}

TEST_CASE("all loops multiply alike, for all signs and sizes around their blocks") {
  for (const bool a_signed : {false, true})
    for (const bool b_signed : {false, true}) {
      for (const int64_t m : {1, 2, 5, 6, 7, 13})
        CheckProduct(m, 9, 70, a_signed, b_signed, m % 2 == 1);
      for (const int64_t k : {1, 2, 3, 4, 5, 64, 300})
        CheckProduct(3, k, 17, a_signed, b_signed, true);
      for (const int64_t n : {1, 15, 16, 63, 64, 65, 129})
        CheckProduct(4, 7, n, a_signed, b_signed, n % 2 == 1);
      CheckProduct(100, 33, 65, a_signed, b_signed, true);
    }
}

TEST_CASE("all loops quantise sums as Quantize does") {
  constexpr int64_t kColumns = detail::kPanelColumns, kRows = 2;
  std::vector<int32_t> sums;
  for (int32_t i = 0; i < kRows * kColumns; ++i)
    sums.push_back(i % 9 == 0 ? (i % 2 ? INT32_MAX : INT32_MIN) : i * 5 - 320);
  std::vector<float> factors(static_cast<size_t>(kRows + kColumns), 0.5f);  // half of them are ties
  factors[0] = std::numeric_limits<float>::quiet_NaN();
  factors[5] = -0.3f;
  const auto check = [&]<class T>(T, float zero_point, int64_t row_step, int64_t column_step) {
    constexpr float kLowest = (std::numeric_limits<T>::min)(),
                    kHighest = (std::numeric_limits<T>::max)();
    for (const detail::IntegerLoops& loops : detail::AllIntegerLoops())
      for (int64_t vectors = 1; vectors <= 4; ++vectors) {
        uint8_t found[kRows * kColumns];
        loops.quantize({sums.data(), kRows, 1, vectors, factors.data(), row_step, column_step,
                        zero_point, kLowest, kHighest, found});
        for (int64_t row = 0; row < kRows; ++row)
          for (int64_t j = 0; j < vectors * 16; ++j) {
            const auto at = static_cast<size_t>(row * kColumns + j);
            const float factor = factors[static_cast<size_t>(row * row_step + j * column_step)];
            CHECK_MESSAGE(
                static_cast<T>(found[at]) ==
                    detail::Quantize<T>(static_cast<float>(sums[at]) * factor, zero_point),
                loops.name << ", sum " << sums[at] << ", factor " << factor);
          }
      }
  };
  check(int8_t{}, -3, 1, 0);
  check(uint8_t{}, 200, 0, 1);
}

}  // namespace
}  // namespace integer_product_test
