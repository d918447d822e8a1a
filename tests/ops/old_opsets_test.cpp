// Operators of old ONNX opsets through the reader of models: what their schemas of then say.
#include <doctest/doctest.h>

#include "../error_of.hpp"
#include "../interop/onnx_bytes.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/ops/normalization.hpp"

namespace old_opsets_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using OnnxGraph = onnx_bytes::Graph;
using Floats = std::vector<float>;
using Attributes = std::vector<AttributeProto>;

namespace {

auto Run(const OnnxGraph& graph, int64_t opset, const Tensor& x) {
  Executor executor(Compile(ParseOnnxModel(graph.Model(opset)).graph));
  return executor.Run({{"x", x}});
}
Error RefusedAt(int64_t opset, const OnnxGraph& graph) {
  return ErrorOf([&] { ParseOnnxModel(graph.Model(opset)); });
}

// Of x [2, 1, 2] with the given attributes and statistics of `extents`.
OnnxGraph BatchNormalization(const onnx_bytes::Ints& extents, const Attributes& attributes) {
  OnnxGraph graph;
  graph.Input("x", {2, 1, 2});
  const auto add = [&](const char* name, const Floats& values) {
    graph.Initializer(onnx_bytes::FloatTensor(name, extents, values));
  };
  add("s", {2, 1});
  add("b", {1, 0});
  add("mean", {1, 10});
  add("var", {3, 24});
  return graph.Node("BatchNormalization", {"x", "s", "b", "mean", "var"}, {"y"}, attributes, "norm")
      .Output("y");
}

TEST_CASE("Before opset 9 BatchNormalization may have statistics for every activation") {
  const Tensor x = Tensor::From<float>({2, 1, 2}, {3, 5, 10, 20});
  const Attributes attributes = {AttributeProto::Int("spatial", 0),
                                 AttributeProto::Float("epsilon", 1)};
  for (const int64_t opset : {7, 8})
    CHECK(Run(BatchNormalization({1, 2}, attributes), opset, x).at("y").ToVector<float>() ==
          Floats{3, -1, 10, 2});
  CHECK(Contains(ErrorOf([&] { Run(BatchNormalization({2}, attributes), 8, x); }).what(),
                 "but inference finds ?[1, 2]"));
  for (const int64_t opset : {9, 14, 21})
    CHECK(Contains(RefusedAt(opset, BatchNormalization({1, 2}, attributes)).what(),
                   "node 'norm' (BatchNormalization): statistics for every activation (spatial = "
                   "0) were dropped from ONNX in opset 9"));
}

}  // namespace
}  // namespace old_opsets_test
