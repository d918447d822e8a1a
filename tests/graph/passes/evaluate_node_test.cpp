#include "opkit/graph/passes/evaluate_node.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"

namespace evaluate_node_test {
using namespace pass_graphs;

TEST_CASE("a node is evaluated alone if its outputs are its only effect") {
  using detail::MayEvaluate;
  CHECK(MayEvaluate(Scale("X", "Y", 2)));
  CHECK_FALSE(MayEvaluate(Accumulate("X", "Y")));
  CHECK_FALSE(MayEvaluate(OperatorDef("Noise").Output("Y")));
  CHECK_FALSE(MayEvaluate(Scale("X", "Y", 2).Device(DeviceType::kCUDA)));
  const Tensor x = Matrix(1);
  const std::vector<Tensor> outputs = detail::EvaluateNode(Scale("X", "Y", 2), {&x});
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].ToVector<float>() == std::vector<float>{2, -2, 4, 1});
}

}  // namespace evaluate_node_test
