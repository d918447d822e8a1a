// Conv of the "onednn" backend: the same as the plain operator, with weights packed by the plan.
#include <random>

#include "backends/onednn/images.hpp"
#include "opkit/backends/onednn/conv.hpp"
#include "opkit/graph/explanation.hpp"
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
  CHECK(ToString(first.output_layouts[0]) == StrCat("onednn aBcd", detail::OnednnLanes(), "b"));
  const KernelConfig inner = check({1, 64, 14, 14}, {64, 64, 3, 3}, {{"pads", Pads(1)}});
  CHECK(inner.input_layouts[0] ==
        detail::OnednnBlocked(Shape{1, 64, 14, 14}, detail::OnednnLanes()));
  check({1, 64, 14, 14}, {160, 64, 1, 1}, {});
  check({3, 24, 20, 20}, {40, 24, 3, 3}, {{"pads", Pads(2)}, {"dilations", Ints{2, 2}}});
  check({1, 48, 30, 1}, {64, 48, 5, 1}, {{"pads", Ints{2, 0, 2, 0}}});
  check({1, 64, 200}, {64, 64, 5}, {{"pads", Ints{2, 2}}});
  check({1, 32, 9, 9}, {64, 16, 3, 3}, {{"group", 2}, {"pads", Pads(1)}});
}

TEST_CASE("Blocks are as long as vectors, unless their pads cost more than that saves") {
  const auto block_of = [](const Shape& x, const Shape& w) {
    const Graph graph = GraphOf("Conv", {Random(x, 1), Random(w, 2)}, {});
    return detail::OnednnBlockOf(Compile(graph).choice(0).config.output_layouts.at(0));
  };
  const int64_t lanes = detail::OnednnLanes();
  CHECK(block_of({1, 3, 24, 24}, {16, 3, 3, 3}) == lanes);
  CHECK(block_of({1, 3, 24, 24}, {24, 3, 5, 5}) == lanes);
  CHECK(block_of({1, 24, 24, 24}, {40, 24, 3, 3}) == lanes);
  CHECK(block_of({1, 3, 24, 24}, {8, 3, 3, 3}) == 8);
  CHECK(block_of({1, 8, 24, 24}, {8, 8, 5, 5}) == 8);
  CHECK(block_of({1, 8, 24, 24}, {24, 8, 5, 5}) == 8);
}

TEST_CASE("With AVX-512, groups that fill blocks of 8 alone are left to other backends") {
  Graph graph =
      GraphOf("Conv", {Random({1, 96, 12, 12}, 1), Random({96, 24, 3, 3}, 2)}, {{"group", 4}});
  const Plan plan = Compile(graph);
  CHECK((plan.choice(0).kernel->backend == "onednn") == (detail::OnednnLanes() == 8));
  const Tensor x = Random({1, 96, 12, 12}, 9), expected = RunGraph(Plainly(graph), x);
  CheckClose(RunGraph(graph, x), expected);
  graph.ReplaceNode(0, OperatorDef(graph.node(0)).Backends("onednn"));
  CHECK(ToString(Compile(graph).choice(0).config.output_layout(0)) == "onednn aBcd8b");
  CheckClose(RunGraph(graph, x, 3), expected);
}

// A chain of convolutions and light operators, with channels that fill blocks of 8 alone.
Graph MixedChain() {
  const Ints pads(4, 1), two(2, 2);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1, 3, 20, 20});
  graph.AddConstant("v", Random({24, 3, 3, 3}, 1));
  graph.AddConstant("w", Random({40, 24, 3, 3}, 2));
  graph.AddConstant("each", Random({40, 1, 3, 3}, 3));
  graph.AddConstant("narrow", Random({24, 64, 1, 1}, 4));
  graph.AddConstant("up", Random({24, 20, 2, 2}, 5));
  graph.AddNode(OperatorDef("Conv", {"x", "v"}, {"a"}, {{"pads", pads}}));
  graph.AddNode(OperatorDef("HardSigmoid", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("Conv", {"b", "w"}, {"c"}, {{"pads", pads}}));
  graph.AddNode(OperatorDef("Conv", {"c", "each"}, {"d"}, {{"pads", pads}, {"group", 40}}));
  graph.AddNode(OperatorDef("Add", {"c", "d"}, {"e"}));
  graph.AddNode(OperatorDef("Concat", {"b", "e"}, {"f"}, {{"axis", 1}}));
  graph.AddNode(OperatorDef("MaxPool", {"f"}, {"g"}, {{"kernel_shape", two}, {"strides", two}}));
  graph.AddNode(OperatorDef("Conv", {"g", "narrow"}, {"h"}));
  graph.AddNode(OperatorDef("ConvTranspose", {"h", "up"}, {"i"}, {{"strides", two}}));
  graph.AddNode(OperatorDef("GlobalAveragePool", {"i"}, {"y"}));
  graph.AddOutput("y");
  return graph;
}

TEST_CASE("A saved selection forces blocks of 8 or of 16 on a whole chain") {
  const Graph graph = MixedChain();
  const Tensor x = Random({1, 3, 20, 20}, 9);
  const Tensor expected = RunGraph(Plainly(graph), x);
  for (const int64_t block : {8, 16}) {
    CAPTURE(block);
    std::string saved = StrCat("a\tConv\tonednn\t", block == 8 ? 0 : 1, "\n");
    for (const char* node : {"c", "d", "h"}) saved += StrCat(node, "\tConv\tonednn\t0\n");
    saved += "i\tConvTranspose\tonednn\t0\n";
    PlanOptions options{.memory = {.verify = true}};
    options.selection.forced = ParseSelection(saved);
    if (block == 16 && !detail::OnednnHas(dnnl::cpu_isa::avx512_core)) {
      CHECK_THROWS_AS(Compile(graph, options), Error);
      continue;
    }
    for (const int threads : {1, 3}) {
      options.threads = threads;
      const Plan plan = Compile(graph, options);
      for (int node = 0; node < graph.num_nodes(); ++node)
        CHECK(ToString(plan.choice(node).config.output_layout(0)) ==
              StrCat("onednn aBcd", block, "b"));
      CheckClose(Executor(plan).Run({{"x", x}}).Get("y"), expected);
    }
  }
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
    const Tensor expected = RunGraph(Plainly(graph), x);
    for (const int threads : {1, 3}) CheckClose(RunGraph(graph, x, threads), expected);
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
    for (const Explanation::Node& node : Compile(graph).Explain().nodes)
      for (const Explanation::Candidate& candidate : node.candidates) {
        if (candidate.layouts.empty()) continue;
        CAPTURE(candidate.layouts);
        PlanOptions options{.threads = 3};
        options.selection.forced = Selection{{{"y", "onednn", candidate.config}}};
        CheckClose(Executor(Compile(graph, options)).Run({{"i0", inputs[0]}}).Get("y"), expected);
      }
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
  CheckOptions options;
  options.compare.gradient = false;  // ops_test checks it, on smaller images
  CheckNode(OperatorDef("Conv", {"x", "w", "b"}, {"y"}),
            {Random({1, 64, 12, 12}, 1), Random({64, 64, 1, 1}, 2), Random(Shape{64}, 3)}, options);
}

}  // namespace
}  // namespace conv_test
