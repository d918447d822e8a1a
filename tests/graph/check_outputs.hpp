// The outputs of an executor's run, in the graph's order, against those that are expected.
#ifndef OPKIT_TESTS_GRAPH_CHECK_OUTPUTS_HPP_
#define OPKIT_TESTS_GRAPH_CHECK_OUTPUTS_HPP_

#include <doctest/doctest.h>

#include <vector>

#include "opkit/graph/executor.hpp"
#include "support/tensors.hpp"

inline void CheckOutputs(const opkit::NamedTensors& found,
                         const std::vector<opkit::Tensor>& expected) {
  REQUIRE(found.size() == expected.size());
  size_t i = 0;
  for (const opkit::NamedTensor& output : found) {
    INFO("output ", output.name);
    CHECK(FloatsOf(output.tensor) == FloatsOf(expected[i++]));
  }
}

#endif  // OPKIT_TESTS_GRAPH_CHECK_OUTPUTS_HPP_
