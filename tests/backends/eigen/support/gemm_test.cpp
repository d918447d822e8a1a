#include "opkit/backends/eigen/support/gemm.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace gemm_test {
using namespace opkit;

namespace {

template <class T>
std::vector<T> RandomValues(int64_t count, uint64_t& seed) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<T>(static_cast<double>(seed >> 40) / (1 << 23) - 1);
  }
  return values;
}

// Reference for Gemm: adds one product at a time.
template <class T>
std::vector<T> Expected(int64_t m, int64_t n, int64_t k, T alpha, const GemmMatrix<T>& a,
                        const GemmMatrix<T>& b, T beta, std::vector<T> c, int64_t stride_c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += static_cast<double>(a.data[a.transposed ? l * a.stride + i : i * a.stride + l]) *
               static_cast<double>(b.data[b.transposed ? j * b.stride + l : l * b.stride + j]);
      T& out = c[static_cast<size_t>(i * stride_c + j)];
      out = static_cast<T>(static_cast<double>(alpha) * sum +
                           (beta == 0 ? 0 : static_cast<double>(beta) * static_cast<double>(out)));
    }
  return c;
}

template <class T>
void CheckAgainstLoops(int64_t m, int64_t n, int64_t k, uint64_t seed) {
  for (int transposed = 0; transposed < 4; ++transposed) {
    const bool ta = transposed & 1, tb = transposed & 2;
    const int64_t stride_a = (ta ? m : k) + 1, stride_b = (tb ? k : n) + 3, stride_c = n + 2;
    const auto a = RandomValues<T>(stride_a * (ta ? k : m), seed);
    const auto b = RandomValues<T>(stride_b * (tb ? n : k), seed);
    const auto before = RandomValues<T>(stride_c * m, seed);
    const GemmMatrix<T> left{a.data(), stride_a, ta}, right{b.data(), stride_b, tb};
    for (const T beta : {T(0), T(1), T(-0.5)}) {
      INFO("m ", m, " n ", n, " k ", k, " transposed ", ta, tb, " beta ", beta);
      std::vector<T> c = before;
      if (beta == 0)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j)
            c[static_cast<size_t>(i * stride_c + j)] = std::numeric_limits<T>::quiet_NaN();
      const auto expected = Expected<T>(m, n, k, T(0.75), left, right, beta, c, stride_c);
      Gemm<T>({m, n, k}, T(0.75), left, right, {c.data(), stride_c, beta});
      const double tolerance = (sizeof(T) == 4 ? 1e-6 : 1e-14) * static_cast<double>(k + 4);
      size_t wrong = 0;
      for (size_t i = 0; i < c.size(); ++i)
        wrong += !(std::abs(static_cast<double>(c[i] - expected[i])) <= tolerance);
      REQUIRE(wrong == 0);  // the gaps between the rows of c are compared as well
    }
  }
}

TEST_CASE("Gemm is the product of matrices, transposed or not, with strides") {
  const uint64_t seed = 20240607;
  MESSAGE("seed ", seed);
  const int64_t extents[] = {1, 2, 4, 5, 17, 50, 131};
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    for (const int64_t m : extents)
      for (const int64_t n : extents)
        for (const int64_t k : {1, 3, 64, 300})
          CheckAgainstLoops<float>(m, n, k, seed + static_cast<uint64_t>(m * n * k));
    CheckAgainstLoops<float>(3, 1500, 700, seed);
    CheckAgainstLoops<double>(1, 9, 2, seed);
    CheckAgainstLoops<double>(40, 70, 33, seed);
    CheckAgainstLoops<double>(150, 1, 90, seed);
  }
}

TEST_CASE("Gemm without an inner extent scales the result, without elements does nothing") {
  std::vector<float> c = {1, 2, 3, 4};
  Gemm<float>({2, 2, 0}, 1, {}, {}, {c.data(), 2, 0.5f});
  CHECK(c == std::vector<float>{0.5f, 1, 1.5f, 2});
  const std::vector<float> nan(4, std::numeric_limits<float>::quiet_NaN());
  Gemm<float>({2, 2, 2}, 0, {nan.data(), 2}, {nan.data(), 2}, {c.data(), 2, 2});
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  Gemm<float>({2, 2, 0}, 1, {}, {}, {c.data(), 2});
  CHECK(c == std::vector<float>(4, 0.f));
  Gemm<float>({0, 2, 5}, 1, {}, {}, {nullptr, 2});
  Gemm<float>({2, 0, 5}, 1, {}, {}, {nullptr, 0});
}

TEST_CASE("Gemm gives the same bits on any number of threads") {
  uint64_t seed = 4711;
  MESSAGE("seed ", seed);
  const int64_t shapes[][3] = {{200, 301, 260}, {37, 1999, 130}, {1999, 37, 130}, {1, 3001, 1030},
                               {3001, 1, 1030}, {4, 2100, 515},  {531, 533, 77},  {5, 9000, 90},
                               {9000, 5, 90},   {1030, 129, 40}, {4, 513, 1024},  {513, 3, 1024},
                               {2, 2049, 1024}};
  for (const auto& shape : shapes)
    for (int transposed = 0; transposed < 4; ++transposed) {
      const int64_t m = shape[0], n = shape[1], k = shape[2];
      const bool ta = transposed & 1, tb = transposed & 2;
      const auto a = RandomValues<float>(m * k, seed), b = RandomValues<float>(k * n, seed);
      std::vector<float> first;
      for (const int threads : {1, 2, 3, 4, 7, 8}) {
        INFO("m ", m, " n ", n, " k ", k, " transposed ", ta, tb, " threads ", threads);
        ThreadPool pool(threads);
        PoolScope scope(pool);
        std::vector<float> c(static_cast<size_t>(m * n), 1.f);
        Gemm<float>({m, n, k}, 1.5f, {a.data(), ta ? m : k, ta}, {b.data(), tb ? k : n, tb},
                    {c.data(), n, 0.25f});
        if (first.empty()) first = c;
        REQUIRE(c == first);
      }
    }
}

}  // namespace
}  // namespace gemm_test
