// Shape and Size.
#include "opkit/ops/shape_of.hpp"

#include "data_movement.hpp"
#include "opkit/graph/graph_inference.hpp"

namespace shape_of_test {
using namespace opkit_tests;

namespace {

Ints ShapeOf(const Shape& shape, Arguments args = {}) {
  return Invoke("Shape", {Counting(shape)}, std::move(args))[0].ToVector<int64_t>();
}

TEST_CASE("all extents, or the extents from one axis to another") {
  CHECK(ShapeOf({2, 3, 4}) == Ints{2, 3, 4});
  CHECK(ShapeOf({2, 3, 4}, {{"start", 1}}) == Ints{3, 4});
  CHECK(ShapeOf({2, 3, 4}, {{"start", -2}, {"end", -1}}) == Ints{3});
  CHECK(ShapeOf({2, 3, 4}, {{"start", -9}, {"end", 9}}) == Ints{2, 3, 4});
  CHECK(ShapeOf({2, 3, 4}, {{"start", 2}, {"end", 1}}) == Ints{});
  CHECK(ShapeOf({}) == Ints{});
  CHECK(Invoke("Size", {Counting({2, 3})})[0].ToVector<int64_t>() == Ints{6});
  CHECK(Invoke("Size", {Counting({0, 3})})[0].ToVector<int64_t>() == Ints{0});
  CHECK(Invoke("Size", {Counting({})})[0].shape() == Shape{});
}

TEST_CASE("Shape and Size are constants when the extents are known") {
  CHECK(Inferred("Shape", {{Sym("N"), 3}}) == "int64[2]");
  CHECK(Inferred("Shape", {kNoRank}) == "int64[?]");
  CHECK(Inferred("Size", {kNoRank}) == "int64[]");

  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 3, 4});
  g.AddNode(OperatorDef("Shape", {"X"}, {"all"}));
  g.AddNode(OperatorDef("Shape", {"X"}, {"tail"}, {{"start", 1}}));
  g.AddNode(OperatorDef("Size", {"X"}, {"size"}));
  const GraphView view(g);
  const GraphTypes open = InferGraph(view);
  CHECK(open.Get("all").constant == nullptr);
  REQUIRE(open.Get("tail").constant != nullptr);
  CHECK(open.Get("tail").constant->ToVector<int64_t>() == Ints{3, 4});
  CHECK(open.Get("size").constant == nullptr);
  const GraphTypes known =
      InferGraph(view, {{"X", TensorInfo(DType::kFloat32, SymbolicShape{2, 3, 4})}});
  REQUIRE(known.Get("size").constant != nullptr);
  CHECK(known.Get("size").constant->ToVector<int64_t>() == Ints{24});
  CHECK(known.Get("all").constant->ToVector<int64_t>() == Ints{2, 3, 4});
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("Shape", {"x"}, {"y"}), {Counting({2, 3})});
  CheckNode(OperatorDef("Size", {"x"}, {"y"}), {Counting({2, 3})});
}

}  // namespace
}  // namespace shape_of_test
