// IndexedVector: a vector indexed by the numbers that a graph uses.
#include "opkit/base/indexed_vector.hpp"

#include <doctest/doctest.h>

namespace indexed_vector_test {
using opkit::detail::IndexedVector;

namespace {
enum class Place { kFirst, kSecond };
}  // namespace

TEST_CASE("an IndexedVector is indexed by int, size_t and enumerators, and is a vector besides") {
  IndexedVector<int> numbers{4, 5, 6};
  const int second = 1;
  const size_t third = 2;
  numbers[second] = 7;
  CHECK(numbers[second] == 7);
  CHECK(numbers[third] == 6);
  CHECK(numbers[Place::kFirst] == 4);
  const IndexedVector<int> copy = numbers;
  CHECK(copy[Place::kSecond] == 7);
  const std::vector<int>& as_vector = numbers;
  CHECK(as_vector == std::vector<int>{4, 7, 6});
  const IndexedVector<int> from_vector = std::vector<int>(3, 1);
  CHECK(from_vector.size() == 3);
}

}  // namespace indexed_vector_test
