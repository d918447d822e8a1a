// The layout "onednn": its conversions, and chains of operators that stay in it.
#include "opkit/backends/onednn/layout.hpp"

#include <atomic>
#include <thread>

#include "backends/onednn/images.hpp"
#include "opkit/graph/explanation.hpp"

namespace layout_test { namespace {

using namespace opkit;
using namespace onednn_test;

TEST_CASE("Blocks of channels: the place of each element, the bytes, and the way back") {
  const Tensor x = Random({2, 11, 3, 5}, 1);
  for (const int64_t block : {8, 16}) {
    const Layout layout = detail::OnednnBlocked(x.shape(), block);
    CHECK(ToString(layout) == StrCat("onednn aBcd", block, "b"));
    CHECK(LayoutBytes(layout, x.shape(), x.dtype()) == 2 * 16 * 15 * 4);
    const Tensor blocked = ConvertLayout(x, layout);
    const auto* floats = static_cast<const float*>(blocked.raw_data());
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t c = 0; c < 16; ++c)
        for (int64_t pixel = 0; pixel < 15; ++pixel) {
          const float expected = c < 11 ? x.data<float>()[(n * 11 + c) * 15 + pixel] : 0;
          CHECK(floats[((n * (16 / block) + c / block) * 15 + pixel) * block + c % block] ==
                expected);
        }
    CHECK(ConvertLayout(blocked, Layout()).ToVector<float>() == x.ToVector<float>());
  }
  // From one block to another without the standard layout between them.
  const Layout eight = detail::OnednnBlocked(x.shape(), 8);
  const Layout sixteen = detail::OnednnBlocked(x.shape(), 16);
  CHECK(eight != sixteen);
  CHECK(eight == detail::OnednnBlocked(x.shape(), 8));
  CHECK(FindLayoutPath(eight, sixteen, x.shape(), x.dtype()).steps.size() == 1);
  const Tensor there = ConvertLayout(ConvertLayout(x, eight), sixteen);
  CHECK(ConvertLayout(there, Layout()).ToVector<float>() == x.ToVector<float>());
}

TEST_CASE("The layout of images is made from its text") {
  const Shape shape = {2, 20, 5, 4};
  for (const int64_t block : {8, 16}) {
    const Layout layout = detail::OnednnBlocked(shape, block);
    CHECK(LayoutFromText(ToString(layout), shape, DType::kFloat32) == layout);
  }
  CHECK_FALSE(LayoutFromText("onednn aBcd32b", shape, DType::kFloat32));
  CHECK_FALSE(LayoutFromText("onednn aBcd8b", {20, 5}, DType::kFloat32));
  CHECK_FALSE(LayoutFromText("onednn aBcd8b", shape, DType::kInt32));
}

TEST_CASE("Large images are converted by several threads, images of other types not at all") {
  ThreadPool pool(3);
  const PoolScope scope(pool);
  const Tensor x = Random({2, 35, 60, 61}, 1);
  for (const int64_t block : {8, 16})
    CHECK(ConvertLayout(InBlocks(x, block), Layout()).ToVector<float>() == x.ToVector<float>());
  const Tensor numbers({1, 8, 2, 2}, DType::kInt32);
  CHECK_THROWS_AS(InBlocks(numbers, 8), Error);
}

// Small enough for the values of a chain to keep their size.
Tensor Weights(const Shape& shape, uint64_t seed) {
  Tensor w = Random(shape, seed);
  for (int64_t i = 0; i < w.numel(); ++i) w.mutable_data<float>()[i] *= 0.05f;
  return w;
}
Graph Chain() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1, 32, 24, 24});
  graph.AddConstant("w1", Weights({64, 32, 3, 3}, 1));
  graph.AddConstant("w2", Weights({64, 64, 3, 3}, 2));
  graph.AddConstant("w3", Weights({96, 64, 3, 3}, 3));
  const Ints pads(4, 1);
  graph.AddNode(OperatorDef("Conv", {"x", "w1"}, {"a"}, {{"pads", pads}}));
  graph.AddNode(OperatorDef("Relu", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("Conv", {"b", "w2"}, {"c"}, {{"pads", pads}}));
  graph.AddNode(OperatorDef("MaxPool", {"c"}, {"d"},
                            {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}));
  graph.AddNode(OperatorDef("Conv", {"d", "w3"}, {"y"}, {{"pads", pads}}));
  graph.AddOutput("y");
  return graph;
}

TEST_CASE("A chain is converted once at its start and once at its end") {
  const Graph graph = Chain();
  const Plan plan = Compile(graph);
  const Explanation explanation = plan.Explain();
  CHECK(explanation.converters == 2);
  CHECK(explanation.nodes.front().is_converter());
  CHECK(explanation.nodes.back().is_converter());
  for (const Explanation::Node& node : explanation.nodes)
    if (!node.is_converter())
      CHECK(node.candidates[static_cast<size_t>(node.chosen)].backend == "onednn");

  const Tensor x = Random({1, 32, 24, 24}, 9), expected = RunGraph(Plainly(graph), x);
  for (const int threads : {1, 3}) CheckClose(RunGraph(graph, x, threads), expected);
}

TEST_CASE("Constants are packed when the plan is built") {
  const Plan plan = Compile(Chain());
  // No converter converts a weight.
  for (const Explanation::Node& node : plan.Explain().nodes)
    if (node.is_converter()) CHECK(node.text.find("w1") == std::string::npos);
  const std::string text = ToString(plan.Explain());
  for (const char* packed : {"w1@onednn", "w2@onednn", "w3@onednn"})
    CHECK(text.find(packed) != std::string::npos);
}

TEST_CASE("The caller's number of OpenMP threads stays unchanged") {
  const detail::OpenMp& openmp = detail::OpenMp::Global();
  if (!openmp.get_max_threads) return;
  openmp.set_num_threads(5);
  RunGraph(Chain(), Random({1, 32, 24, 24}, 9), 2);
  CHECK(openmp.get_max_threads() == 5);
}

TEST_CASE("Several threads run and convert at once") {
  const Graph graph = Chain();
  const Tensor x = Random({1, 32, 24, 24}, 9);
  const Tensor expected = RunGraph(graph, x);
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const Tensor found = RunGraph(graph, x, 2);
      equal += found.ToVector<float>() == expected.ToVector<float>();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == 4);
}

}  // namespace
}  // namespace layout_test
