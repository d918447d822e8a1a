// The reductions of the "onednn" backend: the same as the plain operators, in blocks of channels
// and over the last axes, and left to other backends where they would not be.
#include "backends/onednn/images.hpp"
#include "opkit/graph/explanation.hpp"
#include "support/check_node.hpp"

namespace reduce_test { namespace {

using namespace opkit;
using namespace onednn_test;

const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceProd",      "ReduceMax",
                            "ReduceMin", "ReduceL1",   "ReduceSumSquare", "ReduceL2"};

void AddReduction(Graph& graph, const char* op, const char* input, std::optional<Ints> axes,
                  Arguments args, const char* engine) {
  OperatorDef node(op, {input}, {"y"}, std::move(args));
  if (axes) {
    const auto count = static_cast<int64_t>(axes->size());
    graph.AddConstant("axes", Tensor::From<int64_t>({count}, *axes));
    node.Input("axes");
  }
  graph.AddNode(node.Backends(engine));
  graph.AddOutput("y");
}
// Builds a graph that reduces the output of an identity convolution, which is in blocks of
// channels. The convolution has taps enough for a plan to convert to blocks.
Graph OfImages(const char* op, const Shape& x, std::optional<Ints> axes, const Arguments& args) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, SymbolicShape(x));
  const bool is_flat = x.rank() == 3;
  const int64_t taps = is_flat ? 5 : 9;
  Tensor identity = Filled(is_flat ? Shape{x[1], x[1], taps} : Shape{x[1], x[1], 3, 3}, 0);
  for (int64_t c = 0; c < x[1]; ++c)
    identity.mutable_data<float>()[(c * x[1] + c) * taps + taps / 2] = 1;
  graph.AddConstant("w", identity);
  graph.AddNode(
      OperatorDef("Conv", {"x", "w"}, {"h"}, {{"pads", is_flat ? Ints{2, 2} : Ints(4, 1)}}));
  AddReduction(graph, op, "h", std::move(axes), args, "");
  return graph;
}
Graph OfRows(const char* op, const Shape& x, std::optional<Ints> axes, const Arguments& args = {},
             const char* engine = "onednn") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, SymbolicShape(x));
  AddReduction(graph, op, "x", std::move(axes), args, engine);
  return graph;
}
Graph Plainly(Graph graph) {
  for (int i = 0; i < graph.num_nodes(); ++i)
    graph.ReplaceNode(i, OperatorDef(graph.node(i)).Backends("reference", kRequired));
  return graph;
}
void CheckSame(const Graph& graph, const Tensor& x) {
  const Tensor expected = RunGraph(Plainly(graph), x);
  for (const int threads : {1, 3}) CheckClose(RunGraph(graph, x, threads), expected);
}
std::string BackendOf(const Graph& graph) {
  const Plan plan = Compile(graph);
  return plan.choice(graph.num_nodes() - 1).kernel->backend;
}

TEST_CASE("All pixels of a chain's images are reduced in the layout that they come in") {
  for (const char* op : kOps)
    for (const Shape& x : {Shape{2, 20, 3, 5}, Shape{1, 32, 2, 4}, Shape{2, 64, 9}})
      for (const int64_t keepdims : {0, 1}) {
        INFO(StrCat(op, " of ", x, ", keepdims ", keepdims));
        const Ints axes = x.rank() == 4 ? Ints{-1, 2} : Ints{2};
        const Graph graph = OfImages(op, x, axes, {{"keepdims", keepdims}});
        CHECK(BackendOf(graph) == "onednn");
        // The plan converts x and, with keepdims, y; nothing is converted between the two nodes.
        CHECK(Compile(graph).Explain().converters == 1 + keepdims);
        CheckSame(graph, Random(x, 1));
      }
}

TEST_CASE("Large images are added in double") {
  const Shape shape{1, 16, 300, 300};
  const Graph graph = OfImages("ReduceSum", shape, Ints{2, 3}, {});
  CHECK(BackendOf(graph) == "onednn");
  CHECK(RunGraph(graph, Filled(shape, 0.1f)).ToVector<float>()[3] ==
        doctest::Approx(9000.000134).epsilon(1e-7));
}

TEST_CASE("A reduction of other axes than the pixels does not run in blocks of channels") {
  // As many elements are left of the first two axes and of axes 0 and 3 as of the pixels.
  const Shape shape{4, 16, 4, 16};
  for (const Ints& axes :
       {Ints{1}, Ints{3}, Ints{0, 1}, Ints{0, 3}, Ints{1, 2, 3}, Ints{0, 2, 3}}) {
    const Graph graph = OfImages("ReduceSum", shape, axes, {});
    CHECK(BackendOf(graph) != "onednn");
    CheckSame(graph, Random(shape, 1));
  }
  for (const int64_t noop : {0, 1})
    for (const std::optional<Ints>& axes : {std::optional<Ints>(), std::optional<Ints>(Ints{})}) {
      const Graph graph =
          OfImages("ReduceSumSquare", shape, axes, {{"noop_with_empty_axes", noop}});
      CHECK(BackendOf(graph) != "onednn");
      CheckSame(graph, Random(shape, 1));
    }
}

TEST_CASE("Sums and means over the last axes, for nodes that ask for them") {
  const auto check = [](const Shape& x, std::optional<Ints> axes, const Arguments& args = {}) {
    for (const char* op : {"ReduceSum", "ReduceMean"}) {
      INFO(StrCat(op, " of ", x));
      const Graph graph = OfRows(op, x, axes, args);
      CHECK(BackendOf(graph) == "onednn");
      CheckSame(graph, Random(x, 1));
    }
  };
  check({400, 3000}, Ints{1});
  check({40, 17}, Ints{-1}, {{"keepdims", 0}});
  check({3, 50, 7, 11}, Ints{3, 2});
  check({3, 5, 7, 11}, Ints{1, -1, 2}, {{"keepdims", 0}});
  check({3, 50, 7, 1}, Ints{2});
  check({5, 6, 7}, {});
  check({5, 6, 7}, Ints{});
  check({5, 1, 7}, Ints{2}, {{"noop_with_empty_axes", 1}});
}

TEST_CASE("Numbers whose sums float does not hold") {
  const float inf = std::numeric_limits<float>::infinity(), nan = inf - inf;
  const std::vector<float> rows[] = {{3e38f, 3e38f, 3e38f, -3e38f},
                                     {3e38f, 3e38f, 3e38f, -1e38f},
                                     {inf, 1, 2, 3},
                                     {1, 2, 3, nan},
                                     {1, inf, -inf, 2},
                                     {1, 2, 3, 4}};
  Tensor x({6, 400}, DType::kFloat32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<float>()[i] =
        i % 100 == 0 ? rows[i / 400][static_cast<size_t>(i % 400 / 100)] : 0.25f;
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    const Graph graph = OfRows(op, x.shape(), Ints{1});
    REQUIRE(BackendOf(graph) == "onednn");
    CheckSame(graph, x);
  }
}

TEST_CASE("In blocks a NaN stays a NaN, and its neighbours stay unchanged") {
  Tensor x = Random({1, 20, 4, 4}, 1);
  for (const int64_t at : {0, 16 * 3 + 15, 16 * 19 + 7}) x.mutable_data<float>()[at] = NAN;
  for (const char* op : kOps) {
    CAPTURE(op);
    const Tensor image = InBlocks(x, 8);
    OperatorDef def(op, {"x", "axes"}, {"y"});
    Workspace ws;
    *ws.CreateTensor("x") = image;
    *ws.CreateTensor("axes") = Tensor::From<int64_t>({2}, {2, 3});
    const std::vector<TensorInfo> infos{TensorInfo::Of(image),
                                        TensorInfo::OfConstant(ws.GetBlob("axes")->Get<Tensor>())};
    const TensorInfo out(DType::kFloat32, {1, 20, 1, 1});
    KernelCandidate chosen;
    const auto operation = CreateSelected(def, &ws, infos, {&out, 1}, {.converts = true}, &chosen);
    REQUIRE(chosen.backend == "onednn");
    operation->Run();
    const Tensor& y = ws.GetBlob("y")->Get<Tensor>();
    const auto* floats = static_cast<const float*>(y.raw_data());
    for (int64_t k = 0; k < 20; ++k) CHECK(std::isnan(floats[k]) == (k == 0 || k == 3 || k == 19));
    for (int64_t k = 20; k < 24; ++k) CHECK(floats[k] == 0);  // pads
  }
}

TEST_CASE("Reductions that differ from the plain operators are left to others, with the reason") {
  const auto refused = [](const Graph& graph, const char* why) {
    const Plan plan = Compile(graph);
    const NodeChoice choice = plan.choice(0);
    CAPTURE(choice.passed_over);
    CHECK(choice.kernel->backend != "onednn");
    CHECK(choice.passed_over.find(why) != std::string::npos);
  };
  const Shape x{40, 300};
  refused(OfRows("ReduceMax", x, Ints{1}), "loses a NaN");
  refused(OfRows("ReduceMin", x, Ints{1}), "loses a NaN");
  refused(OfRows("ReduceProd", x, Ints{1}), "multiplies in float");
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceSumSquare"})
    refused(OfRows(op, x, Ints{1}), "takes one element at a time");
  refused(OfRows("ReduceSum", x, Ints{0}), "the last axes, and no others");
  refused(OfRows("ReduceSum", {3, 4, 5}, Ints{0, 2}), "the last axes, and no others");
  refused(OfRows("ReduceSum", x, {}, {{"noop_with_empty_axes", 1}}),
          "the last axes, and no others");
  refused(OfRows("ReduceSum", {3, 5000}, Ints{1}), "is not exact enough");
  refused(OfRows("ReduceSum", {3, 0}, Ints{1}), "has no elements");
  refused(OfRows("ReduceSum", x, Ints{1}, {}, ""), "Eigen's takes less time");
  Graph open;
  open.AddInput("x", DType::kFloat32, {3, 4});
  open.AddInput("axes", DType::kInt64, {1});
  open.AddNode(OperatorDef("ReduceSum", {"x", "axes"}, {"y"}).Backends("onednn"));
  open.AddOutput("y");
  refused(open, "not known yet");
}

TEST_CASE("Reductions without axes keep their schema's promises in every way they are run") {
  for (const char* op : kOps) CheckNode(OperatorDef(op, {"x"}, {"y"}), {Random({3, 4, 5}, 1)});
}

TEST_CASE("Without a plan, a kernel checks the axes of each run") {
  const auto run = [](const char* op, const Tensor& x, const Ints& axes) {
    Workspace ws;
    *ws.CreateTensor("x") = x;
    *ws.CreateTensor("axes") = Tensor::From<int64_t>({static_cast<int64_t>(axes.size())}, axes);
    const auto made =
        CreateOperator(OperatorDef(op, {"x", "axes"}, {"y"}).Backends("onednn", kRequired), &ws);
    made->Run();
    return ws.GetBlob("y")->Get<Tensor>().ToVector<float>();
  };
  CHECK(run("ReduceSum", Tensor({3, 0}, DType::kFloat32), {1}) == std::vector<float>(3, 0));
  CHECK(run("ReduceSum", Counting({2, 3}), {1}) == std::vector<float>{3, 12});
  CHECK_THROWS_AS(run("ReduceSum", Counting({2, 3}), {0}), UnsupportedOperatorFeature);
  CHECK_THROWS_AS(run("ReduceMax", Counting({2, 3}), {1}), UnsupportedOperatorFeature);
}

}  // namespace
}  // namespace reduce_test
