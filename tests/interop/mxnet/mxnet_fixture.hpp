// Support for tests of libraries with MXNet's boundary, those of libraries/.
#ifndef OPKIT_TESTS_INTEROP_MXNET_MXNET_FIXTURE_HPP_
#define OPKIT_TESTS_INTEROP_MXNET_MXNET_FIXTURE_HPP_

#include "opkit/interop/mxnet.hpp"
#include "plugin/library_fixture.hpp"
#include "support/check_fails.hpp"

namespace mxnet_fixture {
using namespace library_fixture;

inline Tensor Matrix(int64_t rows, int64_t columns, const Floats& values) {
  return Tensor::From<float>({rows, columns}, values);
}
// The inputs of the examples: {{1, 2, 3}, {4, 5, 6}} and {{7}, {8}, {9}}, of product {{50}, {122}}.
inline std::vector<Tensor> GemmInputs() {
  return {Matrix(2, 3, {1, 2, 3, 4, 5, 6}), Matrix(3, 1, {7, 8, 9})};
}

// The counters of a library (libraries/boundary.h).
struct Counters {
  int64_t allocations, states, states_made, most_queries, initialized, version, selectors, last_id;
};
inline Counters ReadCounters(const std::string& backend = {}) {
  InvokeOptions options;
  options.backends = backend;
  const std::vector<int64_t> all =
      Invoke("counters", std::vector<Tensor>{}, {}, options).at(0).ToVector<int64_t>();
  REQUIRE(all.size() == sizeof(Counters) / sizeof(int64_t));
  return {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7]};
}

// Library "whole", which must have its memory back at the end of the scope.
class Whole : public Scoped {
 public:
  Whole() : Scoped("whole") {}
  ~Whole() {
    const Counters left = ReadCounters();
    CHECK(left.allocations == 0);
    CHECK(left.states == 0);
  }
};

}  // namespace mxnet_fixture

#endif  // OPKIT_TESTS_INTEROP_MXNET_MXNET_FIXTURE_HPP_
