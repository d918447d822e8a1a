// Operators of old ONNX opsets through the reader of models: what their schemas of then say.
#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/ops/cast.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/nn/normalization.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"

namespace old_opsets_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using OnnxGraph = onnx_bytes::Graph;
using Attributes = std::vector<AttributeProto>;

namespace {

// A Dropout of x [3], whose mask is `m`, and is returned.
OnnxGraph Dropout(const Attributes& attributes, int dtype = onnx_bytes::kFloat) {
  return OnnxGraph()
      .Input("x", {3}, dtype)
      .Node("Dropout", {"x"}, {"y", "m"}, attributes, "drop")
      .Output("y")
      .Output("m");
}
auto Run(const OnnxGraph& graph, int64_t opset, const Tensor& x) {
  Executor executor(Compile(ParseOnnxModel(graph.Model(opset)).graph));
  return executor.Run({{"x", x}});
}
Error RefusedAt(int64_t opset, const OnnxGraph& graph) {
  return ErrorOf([&] { ParseOnnxModel(graph.Model(opset)); });
}

TEST_CASE("Before opset 10 the mask of Dropout is ones of the data's type") {
  const Attributes half = {AttributeProto::Float("ratio", 0.5f)};
  for (const int64_t opset : {7, 9}) {
    CAPTURE(opset);
    auto out = Run(Dropout(half), opset, Tensor::From<float>({3}, {1, -2, 3}));
    CHECK(out.Get("y").ToVector<float>() == Floats{1, -2, 3});
    CHECK(out.Get("m").dtype() == DType::kFloat32);
    CHECK(out.Get("m").ToVector<float>() == Floats{1, 1, 1});
    out = Run(Dropout(half, onnx_bytes::kDouble), opset, Tensor::From<double>({3}, {1, -2, 3}));
    CHECK(out.Get("m").ToVector<double>() == std::vector<double>{1, 1, 1});
  }
  const float16 two(2.f);
  const auto out =
      Run(Dropout(half, onnx_bytes::kFloat16), 8, Tensor::From<float16>({3}, {two, two, two}));
  CHECK(out.Get("m").dtype() == DType::kFloat16);
  CHECK(static_cast<float>(out.Get("m").data<float16>()[2]) == 1);
}

TEST_CASE("From opset 10 on the mask of Dropout is true") {
  for (const int64_t opset : {10, 11, 12, 21}) {
    CAPTURE(opset);
    const auto out = Run(Dropout({}), opset, Tensor::From<float>({3}, {1, -2, 3}));
    CHECK(out.Get("y").ToVector<float>() == Floats{1, -2, 3});
    CHECK(out.Get("m").ToVector<bool>() == std::vector<bool>{true, true, true});
  }
}

TEST_CASE("Before opset 7 Dropout with is_test passes its data through, and has no mask") {
  const AttributeProto test = AttributeProto::Int("is_test", 1);
  const auto dropout = [](const Attributes& attributes) {
    return OnnxGraph()
        .Input("x", {3})
        .Node("Dropout", {"x"}, {"y", "m"}, attributes, "drop")
        .Output("y");
  };
  const Tensor x = Tensor::From<float>({3}, {1, -2, 3});
  CHECK(
      Run(dropout({test, AttributeProto::Float("ratio", 0.9f)}), 6, x).Get("y").ToVector<float>() ==
      Floats{1, -2, 3});
  CHECK(Run(dropout({test, AttributeProto::Ints("consumed_inputs", {0})}), 1, x)
            .Get("y")
            .ToVector<float>() == Floats{1, -2, 3});
  for (const Attributes& trains : {Attributes{}, Attributes{AttributeProto::Int("is_test", 0)}}) {
    const Error error = RefusedAt(6, dropout(trains));
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.what(),
                   "node 'drop' (Dropout): its is_test is 0, so that it trains; export the model "
                   "for inference"));
  }
  CHECK(Contains(RefusedAt(6, Dropout({test})).what(),
                 "node 'drop' (Dropout): its output 'm' is not filled where is_test is not 0, and "
                 "is read"));
  CHECK(Contains(ErrorOf([&] { Run(dropout({test}), 7, x); }).what(), "has no argument 'is_test'"));
}

// A graph that normalizes x [2, 1, 2] with the given attributes and statistics of `extents`.
OnnxGraph BatchNormalization(const Ints& extents, const Attributes& attributes) {
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
    CHECK(Run(BatchNormalization({1, 2}, attributes), opset, x).Get("y").ToVector<float>() ==
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
