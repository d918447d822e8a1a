// DepthToSpace and SpaceToDepth.
#include "opkit/ops/indexing/depth_space.hpp"

#include "../data_movement.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace depth_space_test {
using namespace opkit_tests;

namespace {

TEST_CASE("channels become a block of pixels, in both orders, and back") {
  const Tensor x = Counting({1, 8, 1, 2});
  const Tensor rows = Invoke("DepthToSpace", {x}, {{"blocksize", 2}})[0];
  CHECK(rows.shape() == Shape{1, 2, 2, 4});
  CHECK(FloatsOf(rows) == Floats{0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15});
  const Tensor columns = Invoke("DepthToSpace", {x}, {{"blocksize", 2}, {"mode", "CRD"}})[0];
  CHECK(FloatsOf(columns) == Floats{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15});
  CHECK(FloatsOf(Invoke("SpaceToDepth", {rows}, {{"blocksize", 2}})[0]) == FloatsOf(x));
  CHECK(FloatsOf(Invoke("SpaceToDepth", {columns}, {{"blocksize", 2}, {"mode", "CRD"}})[0]) ==
        FloatsOf(x));
  CHECK(Invoke("SpaceToDepth", {Counting({0, 1, 2, 2})}, {{"blocksize", 2}})[0].shape() ==
        Shape{0, 4, 1, 1});
}

TEST_CASE("extents are inferred, and those that blocks do not divide are refused") {
  CHECK(Inferred("DepthToSpace", {{Sym("N"), 9, 2, Sym("W")}}, {{"blocksize", 3}}) ==
        "float32[N, 1, 6, ?]");
  CHECK(Inferred("SpaceToDepth", {{2, 1, 6, 3}}, {{"blocksize", 3}}) == "float32[2, 9, 2, 1]");
  CHECK(Contains(Refused("DepthToSpace", {{1, 6, 2, 2}}, {{"blocksize", 2}}),
                 "axis 1 of the input [1, 6, 2, 2] is not a multiple of 4"));
  CHECK(Contains(Refused("SpaceToDepth", {{1, 6, 2, 3}}, {{"blocksize", 2}}),
                 "axis 3 of the input [1, 6, 2, 3] is not a multiple of 2"));
  CHECK(Contains(Refused("SpaceToDepth", {{4, 4}}, {{"blocksize", 2}}), "expected rank 4"));
  CHECK(Contains(Refused("SpaceToDepth", {{1, 1, 1, 1}}, {{"blocksize", 0}}),
                 "blocksize is 0, expected 1 to 32768"));
  CHECK(Contains(
      ErrorOf([] {
        Invoke("DepthToSpace", {Counting({1, 4, 1, 1})}, {{"blocksize", 2}, {"mode", "RCD"}});
      }).message(),
      "known: 'DCR', 'CRD'"));
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  CheckNode(OperatorDef("DepthToSpace", {"x"}, {"y"}, {{"blocksize", 2}}),
            {Counting({2, 4, 1, 2})});
  CheckNode(OperatorDef("SpaceToDepth", {"x"}, {"y"}, {{"blocksize", 2}}),
            {Counting({2, 1, 2, 4})});
  CheckNode(OperatorDef("DepthToSpace", {"x"}, {"y"}, {{"blocksize", 2}, {"mode", "CRD"}}),
            {Counting({2, 4, 1, 2})});
  CHECK(HasGradient("DepthToSpace"));
}

TEST_CASE("the gradient of DepthToSpace names a mode only if it is CRD") {
  const auto args_of = [](const char* mode) {
    GradientNames names;
    const OperatorDef def("DepthToSpace", {"x"}, {"y"}, {{"blocksize", 2}, {"mode", mode}});
    return GetGradientForOp(def, {{"dy"}}, names).ops[0].args();
  };
  CHECK(!args_of("DCR").Has("mode"));
  CHECK(args_of("CRD").Get<std::string>("mode", "") == "CRD");
}

}  // namespace
}  // namespace depth_space_test
