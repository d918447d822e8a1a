// Runs CheckOperator on a node with these inputs, and fails the test with its report.
#ifndef OPKIT_TESTS_SUPPORT_CHECK_NODE_HPP_
#define OPKIT_TESTS_SUPPORT_CHECK_NODE_HPP_

#include <doctest/doctest.h>

#include <vector>

#include "opkit/op/check.hpp"

inline void CheckNode(const opkit::OperatorDef& def, const std::vector<opkit::Tensor>& inputs,
                      const opkit::CheckOptions& options = {}) {
  const opkit::CheckReport report = CheckOperator(def, inputs, options);
  CHECK_MESSAGE(report.ok(), ToString(report));
}

#endif  // OPKIT_TESTS_SUPPORT_CHECK_NODE_HPP_
