// Conv of the "onednn" backend: the same as the plain operator, with weights packed by the plan.
#include <random>

#include "backends/onednn/images.hpp"
#include "opkit/backends/onednn/conv.hpp"
#include "support/check_node.hpp"

namespace conv_test { namespace {

using namespace opkit;
using namespace onednn_test;

Ints Pads(int64_t pad) { return Ints(4, pad); }

TEST_CASE("Convolutions that models use are computed as the plain operator does") {
  const auto check = [](const Shape& x, const Shape& w, const Arguments& args) {
    CheckConstants("Conv", {Random(x, 1), Random(w, 2)}, args);
    return CheckConstants("Conv", {Random(x, 3), Random(w, 4), Random(Shape{w[0]}, 5)}, args);
  };
  const KernelConfig first =
      check({1, 3, 32, 32}, {16, 3, 3, 3}, {{"pads", Pads(1)}, {"strides", Ints{2, 2}}});
  CHECK(first.input_layouts[0].is_standard());
  CHECK(ToString(first.output_layouts[0]) == "onednn aBcd8b");
  const KernelConfig inner = check({1, 64, 14, 14}, {64, 64, 3, 3}, {{"pads", Pads(1)}});
  CHECK(inner.input_layouts[0] ==
        detail::OnednnBlocked(Shape{1, 64, 14, 14}, detail::OnednnFirstBlock(64, 64, false)));
  check({1, 64, 14, 14}, {160, 64, 1, 1}, {});
  check({3, 24, 20, 20}, {40, 24, 3, 3}, {{"pads", Pads(2)}, {"dilations", Ints{2, 2}}});
  check({1, 48, 30, 1}, {64, 48, 5, 1}, {{"pads", Ints{2, 0, 2, 0}}});
  check({1, 64, 200}, {64, 64, 5}, {{"pads", Ints{2, 2}}});
  check({1, 32, 9, 9}, {64, 16, 3, 3}, {{"group", 2}, {"pads", Pads(1)}});
}

TEST_CASE("Convolutions of few operations keep an input that is in blocks already") {
  for (const int64_t channels : {8, 20, 64}) {
    CAPTURE(channels);
    Graph graph;
    const Tensor x = Random({1, 3, 24, 24}, 1);
    graph.AddInput("x", DType::kFloat32, x.shape());
    graph.AddConstant("w", Random({channels, 3, 3, 3}, 2));
    graph.AddConstant("v", Random({channels, 1, 3, 3}, 3));
    graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"h"}));
    graph.AddNode(OperatorDef("Conv", {"h", "v"}, {"y"}, {{"group", channels}, {"pads", Pads(1)}}));
    graph.AddOutput("y");
    const Plan plan = Compile(graph);
    CHECK(plan.choice(1).kernel->backend == "onednn");
    Graph plain = graph;
    for (int i = 0; i < plain.num_nodes(); ++i)
      plain.ReplaceNode(i, OperatorDef(plain.node(i)).Backends("reference", kRequired));
    for (const int threads : {1, 3}) CheckClose(RunGraph(graph, x, threads), RunGraph(plain, x));
  }
}

TEST_CASE("Random convolutions are computed as the plain operator does, or refused with a reason") {
  int taken = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(engine() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t groups = draw(0, 3) == 0 ? draw(2, 4) : 1;
    Ints x = {draw(1, 3), groups * draw(1, 24)}, w = {groups * draw(1, 40), x[1] / groups};
    Ints kernel, strides, dilations, pads;
    const int64_t spatial = draw(1, 3);
    for (int64_t axis = 0; axis < spatial; ++axis) {
      w.push_back(draw(1, 4));
      strides.push_back(draw(1, 3));
      dilations.push_back(draw(1, 2));
      x.push_back((w.back() - 1) * dilations.back() + draw(1, spatial == 3 ? 5 : 16));
    }
    for (int64_t i = 0; i < 2 * spatial; ++i) pads.push_back(draw(0, 2));
    const Arguments args = {
        {"group", groups}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}};
    const std::vector<Tensor> inputs{Random(Shape(x), seed), Random(Shape(w), seed + 1),
                                     Random(Shape{w[0]}, seed + 2)};
    const Graph graph = GraphOf("Conv", inputs, args);
    const NodeChoice choice = Compile(graph).choice(0);
    taken += choice.kernel->backend == "onednn";
    if (choice.kernel->backend != "onednn") CHECK(choice.passed_over.size() > 20);
    const Tensor expected = Invoke("Conv", inputs, args, {.backends = "reference"})[0];
    for (const int threads : {1, 3}) CheckClose(RunGraph(graph, inputs[0], threads), expected);
    CheckSameOn("onednn", "Conv", inputs, args);
  }
  CHECK(taken >= 10);
}

TEST_CASE("Products of matrices keep the standard layout where the weights are not constant") {
  const Tensor x = Random({1, 64, 20, 20}, 1), w = Random({64, 64, 1, 1}, 2);
  CHECK(IsTakenBy("onednn", "Conv", {x, w}, {}, 1));
  CheckSameOn("onednn", "Conv", {x, w}, {});
  const Tensor wide = Random({64, 64, 3, 3}, 3);
  CHECK_FALSE(IsTakenBy("onednn", "Conv", {x, wide}, {}, 1));
}

TEST_CASE("Convolutions keep the promises of their schema in every way that a kernel is run") {
  CheckNode(OperatorDef("Conv", {"x", "w", "b"}, {"y"}),
            {Random({1, 64, 12, 12}, 1), Random({64, 64, 1, 1}, 2), Random(Shape{64}, 3)});
}

}  // namespace
}  // namespace conv_test
