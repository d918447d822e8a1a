#include "opkit/op/random.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace random_test {
using opkit::RandomGenerator;

TEST_CASE("the same seed and stream give the same numbers, others give others") {
  RandomGenerator a(7, 1), same(7, 1), other_stream(7, 2), other_seed(8, 1);
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 100; ++i) numbers.push_back(a());
  int equal_stream = 0, equal_seed = 0;
  for (uint64_t number : numbers) {
    CHECK(same() == number);
    equal_stream += other_stream() == number;
    equal_seed += other_seed() == number;
  }
  CHECK(equal_stream == 0);
  CHECK(equal_seed == 0);
}

TEST_CASE("uniform numbers lie in [0, 1) and are spread evenly") {
  RandomGenerator random(1);
  int counts[10] = {};
  for (int i = 0; i < 100000; ++i) {
    const double x = random.uniform();
    REQUIRE(x >= 0);
    REQUIRE(x < 1);
    ++counts[static_cast<int>(x * 10)];
  }
  // The standard deviation of each count is 95.
  for (int count : counts) CHECK(count == doctest::Approx(10000).epsilon(0.05));
}

TEST_CASE("normal numbers have mean 0 and variance 1") {
  RandomGenerator random(2);
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  CHECK(sum / kCount == doctest::Approx(0).epsilon(0.02));
  CHECK(squares / kCount == doctest::Approx(1).epsilon(0.03));
}

}  // namespace random_test
