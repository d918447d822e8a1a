// Softmax and LayerNormalization of the "onednn" backend: the same as the plain operators, and left
// to other backends where they are small.
#include "backends/onednn/images.hpp"

namespace rows_test { namespace {

using namespace opkit;
using namespace onednn_test;

TEST_CASE("Softmax along any axis") {
  for (const Shape& shape : {Shape{40, 300}, Shape{3, 50, 7, 11}, Shape{1, 4000}, Shape{2, 1, 5}})
    for (int64_t axis = -1; axis < shape.rank(); ++axis)
      for (const char* op : {"Softmax", "LogSoftmax"})
        CheckSameOn("onednn", op, {Random(shape, 1)}, {{"axis", axis}});
}

TEST_CASE("Softmax of large numbers, of masks and of a NaN") {
  Tensor x = Random({4, 96}, 1);
  float* row = x.mutable_data<float>();
  for (int i = 0; i < 96; ++i) row[i] *= 1000;
  for (int i = 0; i < 48; ++i) row[96 + i] = -INFINITY;
  row[3 * 96 + 5] = NAN;
  const Tensor y = Invoke("Softmax", {x}, {}, {.backends = "onednn"})[0];
  const Tensor expected = Invoke("Softmax", {x}, {}, {.backends = "reference"})[0];
  for (int64_t i = 0; i < 3 * 96; ++i)
    CHECK(y.data<float>()[i] == doctest::Approx(expected.data<float>()[i]).epsilon(1e-4));
  for (int64_t i = 3 * 96; i < 4 * 96; ++i) CHECK(std::isnan(y.data<float>()[i]));
  Tensor columns = Random({4, 96}, 2);  // along axis 0 it is in one column
  columns.mutable_data<float>()[2 * 96 + 7] = NAN;
  const Tensor z = Invoke("Softmax", {columns}, {{"axis", 0}}, {.backends = "onednn"})[0];
  for (int64_t i = 0; i < 4 * 96; ++i) CHECK(std::isnan(z.data<float>()[i]) == (i % 96 == 7));
}

TEST_CASE("A row of Softmax with an infinity is NaN") {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    Tensor x = Random({3, 96}, 1);
    x.mutable_data<float>()[96 + 7] = INFINITY;
    const Tensor y = Invoke(op, {x}, {}, {.backends = "onednn"})[0];
    for (int64_t i = 0; i < 3 * 96; ++i) CHECK(std::isnan(y.data<float>()[i]) == (i / 96 == 1));
  }
}

TEST_CASE("LayerNormalization with and without a bias, of the last axes") {
  const Tensor x = Random({3, 20, 8, 12}, 1);
  for (const Shape& row : {Shape{12}, Shape{8, 12}, Shape{20, 8, 12}}) {
    const Arguments args{{"axis", int64_t{-row.rank()}}, {"epsilon", 1e-3f}};
    CheckSameOn("onednn", "LayerNormalization", {x, Random(row, 2)}, args);
    CheckSameOn("onednn", "LayerNormalization", {x, Random(row, 2), Random(row, 3)}, args);
  }
  const Tensor row = Random(Shape{12}, 2);
  CHECK(IsTakenBy("onednn", "LayerNormalization", {x, row}, {}, 1));
  CHECK_FALSE(IsTakenBy("onednn", "LayerNormalization", {x, row}, {}, 2));
  CHECK_FALSE(IsTakenBy("onednn", "LayerNormalization", {x, Tensor::Scalar(1.f)}, {}, 1));
  CHECK_FALSE(IsTakenBy("onednn", "LayerNormalization", {x, Random({20, 1, 12}, 2)}, {}, 1));
  const Tensor square = Random({64, 64}, 1);  // a factor for each row has the numel of a row
  CHECK_FALSE(IsTakenBy("onednn", "LayerNormalization", {square, Random({64, 1}, 2)}, {}, 1));
  CHECK(IsTakenBy("onednn", "LayerNormalization", {square, Random({1, 64}, 2)}, {}, 1));
}

TEST_CASE("Shapes without a gain are left to other backends, unless the node requests oneDNN") {
  const auto choice_of = [](const char* op, const Shape& shape, const char* engine) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, SymbolicShape(shape));
    graph.AddConstant("scale", Random(Shape{shape.dim(-1)}, 1));
    OperatorDef node(op, {"x"}, {"y"});
    if (node.type() == "LayerNormalization") node.Input("scale");
    graph.AddNode(node.Backends(engine));
    graph.AddOutput("y");
    return Compile(graph).choice(0);
  };
  const auto passed_over = [&](const char* op, const Shape& shape, const char* why) {
    const NodeChoice choice = choice_of(op, shape, "");
    CHECK(choice.kernel->backend != "onednn");
    CHECK(choice.passed_over.find(why) != std::string::npos);
    CHECK(choice_of(op, shape, "onednn").kernel->backend == "onednn");
  };
  passed_over("LayerNormalization", {10, 10}, "longer than what it saves");
  passed_over("Softmax", {200, 200}, "half as long again");
  CHECK(choice_of("LayerNormalization", {40, 200}, "").kernel->backend == "onednn");
}

}  // namespace
}  // namespace rows_test
