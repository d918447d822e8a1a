// ConvTranspose of the "onednn" backend: behind what is in blocks of channels it stays there, and
// is the same as the plain operator.
#include "backends/onednn/images.hpp"

namespace conv_transpose_test { namespace {

using namespace opkit;
using namespace onednn_test;

// Behind a convolution that makes `x` of 3 channels.
Graph Behind(const Shape& x, const Shape& w, const Arguments& args, bool has_bias) {
  Graph graph;
  Ints image(x.begin(), x.end());
  image[1] = 3;
  graph.AddInput("x", DType::kFloat32, SymbolicShape(Shape(image)));
  Ints kernel(static_cast<size_t>(x.rank()), 1);
  kernel[0] = x[1];
  kernel[1] = 3;
  graph.AddConstant("v", Random(Shape(kernel), 1));
  graph.AddConstant("w", Random(w, 2));
  graph.AddNode(OperatorDef("Conv", {"x", "v"}, {"h"}).Backends("onednn"));
  OperatorDef node("ConvTranspose", {"h", "w"}, {"y"}, args);
  if (has_bias) {
    const int64_t groups = args.Get<int64_t>("group", 1);
    graph.AddConstant("b", Random(Shape{w[1] * groups}, 3));
    node.Input("b");
  }
  graph.AddNode(node);
  graph.AddOutput("y");
  return graph;
}

TEST_CASE("Transposed convolutions stay in blocks of channels") {
  int taken = 0;
  const auto check = [&](const Shape& x, const Shape& w, const Arguments& args) {
    for (const bool has_bias : {false, true}) {
      INFO("x ", ToString(x), ", w ", ToString(w));
      const Graph graph = Behind(x, w, args, has_bias);
      taken += Compile(graph).choice(1).kernel->backend == "onednn";
      const Tensor in = Random(graph.inputs()[0].info.shape.ToShape(), 9);
      const Tensor expected = RunGraph(Plainly(graph), in);
      for (const int threads : {1, 3}) CheckClose(RunGraph(graph, in, threads), expected);
    }
  };
  const Ints two{2, 2};
  check({1, 32, 12, 12}, {32, 16, 2, 2}, {{"strides", two}});
  check({3, 16, 9, 10}, {16, 20, 3, 3}, {{"strides", two}, {"pads", Ints(4, 1)}});
  check({1, 16, 9, 9}, {16, 24, 4, 4}, {{"strides", two}, {"pads", Ints{1, 1, 1, 1}}});
  check({2, 32, 8, 8}, {32, 8, 3, 3}, {{"group", 2}, {"dilations", Ints{2, 1}}});
  check({1, 16, 9, 9}, {16, 16, 3, 3},
        {{"strides", two}, {"pads", Ints(4, 1)}, {"output_padding", Ints{1, 1}}});
  check({1, 16, 9, 9}, {16, 16, 3, 3}, {{"strides", two}, {"auto_pad", "SAME_UPPER"}});
  check({1, 24, 40, 40}, {24, 1, 2, 2}, {{"strides", two}});
  CHECK(taken >= 8);
}

}  // namespace
}  // namespace conv_transpose_test
