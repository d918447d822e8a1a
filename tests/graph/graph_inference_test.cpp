#include "opkit/graph/graph_inference.hpp"

#include <doctest/doctest.h>

#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"

namespace graph_inference_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;

SymbolicShape ShapeOf(const Graph& g, const char* value,
                      const std::vector<Graph::Input>& known = {}) {
  const GraphView view(g);
  return InferGraph(view, known).Get(value).shape;
}

OPERATOR_SCHEMA(UpTo).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {Dim::AtMost(c.input_shape(0).Elements())});
});

}  // namespace

TEST_CASE("shapes and dtypes flow through the graph") {
  Graph g;
  g.AddInput("X", kFloat, {2, 3});
  g.AddConstant("W", Tensor({3, 4}, kFloat));
  g.AddNode(OperatorDef("Relu").Input("H").Output("Y"));  // added before what it reads
  g.AddNode(OperatorDef("MatMul").Input("X").Input("W").Output("H"));
  const GraphView view(g);
  const GraphTypes types = InferGraph(view);
  CHECK(types.Get("H").shape == SymbolicShape{2, 4});
  CHECK(types.Get("Y").shape == SymbolicShape{2, 4});
  CHECK(types.Get("Y").dtype == kFloat);
  CHECK(types.Get("W").constant == g.FindConstant("W"));
  CHECK(types.Get("X").constant == nullptr);
  CHECK(Contains(ErrorOf([&] { types.Get("Z"); }).what(), "the graph has no value 'Z'"));
}

TEST_CASE("a symbol stays one until it is known, then it is known everywhere") {
  Graph g;
  g.AddInput("X", kFloat, {Sym("N"), 3});
  g.AddInput("Z", kFloat, {Sym("N"), 4});
  g.AddConstant("W", Tensor({3, 4}, kFloat));
  g.AddNode(OperatorDef("MatMul").Input("X").Input("W").Output("H"));
  g.AddNode(OperatorDef("Add").Input("H").Input("Z").Output("Y"));
  CHECK(ShapeOf(g, "Y") == SymbolicShape{Sym("N"), 4});
  const Graph::Input x{"X", TensorInfo(kFloat, {8, 3})};
  CHECK(ShapeOf(g, "Y", {x}) == SymbolicShape{8, 4});
  CHECK(ShapeOf(g, "Z", {x}) == SymbolicShape{8, 4});
}

TEST_CASE("two symbols that meet are one") {
  Graph g;
  g.AddInput("A", kFloat, {Sym("N")});
  g.AddInput("B", kFloat, {Sym("M")});
  g.AddInput("C", kFloat, {Sym("M"), Sym("N")});
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  const SymbolicShape c = ShapeOf(g, "C");
  CHECK(c[0] == c[1]);
  CHECK(ShapeOf(g, "C", {{"B", TensorInfo(kFloat, {5})}}) == SymbolicShape{5, 5});
}

TEST_CASE("an input's shape is inferred from its readers") {
  Graph g;
  g.AddInput("X", DType::kUndefined, {});
  g.AddInput("Z", kFloat, {2, 4});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("B"));
  g.AddNode(OperatorDef("Add").Input("B").Input("Z").Output("Y"));
  CHECK(ShapeOf(g, "Y") == SymbolicShape{2, 4});
}

TEST_CASE("extents that data decides stay unknown, and the others are known") {
  Graph g;
  g.AddInput("X", kFloat, {10});
  g.AddNode(OperatorDef("Positives").Input("X").Output("P"));
  g.AddNode(OperatorDef("Relu").Input("P").Output("Q"));
  g.AddNode(OperatorDef("Relu").Input("X").Output("R"));
  CHECK(ShapeOf(g, "Q").rank() == 1);
  CHECK(ShapeOf(g, "Q")[0].is_unknown());
  CHECK(ShapeOf(g, "R") == SymbolicShape{10});
}

TEST_CASE("the bound of a data-dependent extent follows its value, and the smaller one counts") {
  Graph g;
  g.AddInput("X", kFloat, {10});
  g.AddInput("Y", kFloat, {4});
  g.AddNode(OperatorDef("UpTo").Input("X").Output("P"));
  g.AddNode(OperatorDef("Relu").Input("P").Output("Q"));
  g.AddNode(OperatorDef("UpTo").Input("Y").Output("R"));
  g.AddNode(OperatorDef("Add").Input("Q").Input("R").Output("S"));
  CHECK(ShapeOf(g, "S") == SymbolicShape{Dim::AtMost(4)});
  CHECK(ShapeOf(g, "P") == SymbolicShape{Dim::AtMost(4)});  // Add takes equal shapes alone
  Graph above = g;
  above.AddNode(OperatorDef("Add").Input("X").Input("R").Output("U"));
  const std::string error = ErrorOf([&] { ShapeOf(above, "U"); }).what();
  CHECK(Contains(error, "input 1 'b' of Add (X, R) -> (U) has shape [<=4]"));
  CHECK(Contains(error, "must have that of input 0 'a', [10]"));
  g.AddNode(OperatorDef("Add").Input("R").Input("Y").Output("T"));
  CHECK(ShapeOf(g, "S") == SymbolicShape{4});
}

TEST_CASE("contradictions show both sides") {
  Graph g;
  g.AddInput("X", kFloat, {2, 3});
  g.AddConstant("W", Tensor({5, 4}, kFloat));
  g.AddNode(OperatorDef("MatMul").Name("fc").Input("X").Input("W").Output("H"));
  const std::string matmul = ErrorOf([&] { ShapeOf(g, "H"); }).what();
  CHECK(Contains(matmul, "cannot multiply [2, 3] by [5, 4]"));
  CHECK(Contains(matmul, "MatMul 'fc' (X, W) -> (H)"));

  Graph symbols;
  symbols.AddInput("X", kFloat, {Sym("N")});
  symbols.AddInput("Z", kFloat, {Sym("N")});
  symbols.AddNode(OperatorDef("Relu").Input("X").Output("Y"));
  const Error both = ErrorOf([&] {
    ShapeOf(symbols, "Y", {{"X", TensorInfo(kFloat, {8})}, {"Z", TensorInfo(kFloat, {4})}});
  });
  CHECK(both.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(both.what(),
                 "value 'Z' is float32[N], but what is given for input 'Z' finds "
                 "float32[4]: extent 8 (N, what is given for input 'X') against 4"));

  Graph adding;
  adding.AddInput("X", kFloat, {2});
  adding.AddInput("Z", kFloat, {3});
  adding.AddNode(OperatorDef("Add").Name("sum").Input("X").Input("Z").Output("Y"));
  const std::string text = ErrorOf([&] { ShapeOf(adding, "Y"); }).what();
  CHECK(Contains(text, "[2]"));
  CHECK(Contains(text, "[3]"));
  CHECK(Contains(text, "Add 'sum' (X, Z) -> (Y)"));

  CHECK(Contains(ErrorOf([&] {
                   ShapeOf(symbols, "Y", {{"W", TensorInfo(kFloat, {8})}});
                 }).what(),
                 "the graph has no input 'W'"));
  CHECK(Contains(ErrorOf([&] {
                   ShapeOf(adding, "X", {{"X", TensorInfo(DType::kInt32, {2})}});
                 }).what(),
                 "value 'X' is float32[2], but what is given for input 'X' finds int32[2]"));
}

// Extents of the input, doubled, and a tensor of such a shape.
class ExtentsOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Shape& shape = Input(0).shape();
    Tensor* out = Output(0, {shape.rank()}, DType::kInt64);
    for (int i = 0; i < shape.rank(); ++i) out->mutable_data<int64_t>()[i] = shape[i];
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Extents).NumInputs(1).NumOutputs(1).Infer([](auto& c) {
  const SymbolicShape& shape = c.input_shape(0);
  if (!shape.is_known()) return c.SetOutput(0, DType::kInt64, {Dim()});
  c.SetOutputData(0, Tensor::From<int64_t>({shape.rank()}, shape.ToShape().vec()));
});
OPKIT_REGISTER_CPU_OPERATOR(Extents, ExtentsOp);

int twice_runs = 0;
class TwiceOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    ++twice_runs;
    const Tensor& x = Input(0);
    Tensor* out = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      out->mutable_data<int64_t>()[i] = 2 * x.data<int64_t>()[i];
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Twice).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Twice, TwiceOp);

class FilledOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, Shape(Input(0).ToVector<int64_t>()), kFloat);
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Filled).NumInputs(1).NumOutputs(1).Infer([](auto& c) {
  const Tensor* shape = c.input_constant(0);
  c.SetOutput(0, kFloat,
              shape ? SymbolicShape(Shape(shape->ToVector<int64_t>())) : SymbolicShape());
});
OPKIT_REGISTER_CPU_OPERATOR(Filled, FilledOp);

TEST_CASE("shapes that are computed from shapes are known before the graph runs") {
  Graph g;
  g.AddInput("X", kFloat, {Sym("N"), 3});
  g.AddNode(OperatorDef("Extents").Input("X").Output("E"));
  g.AddNode(OperatorDef("Twice").Input("E").Output("T"));
  g.AddNode(OperatorDef("Filled").Input("T").Output("F"));
  g.AddNode(OperatorDef("Relu").Input("F").Output("Y"));
  CHECK_FALSE(ShapeOf(g, "Y").has_rank());
  twice_runs = 0;
  const GraphView view(g);
  const GraphTypes types = InferGraph(view, {{"X", TensorInfo(kFloat, {5, 3})}});
  CHECK(twice_runs == 1);
  CHECK(types.Get("Y").shape == SymbolicShape{10, 6});
  REQUIRE(types.Get("T").constant);
  CHECK(types.Get("T").constant->ToVector<int64_t>() == std::vector<int64_t>{10, 6});
  // A copy outlives the original.
  const auto copy = std::make_unique<GraphTypes>(types);
  CHECK(copy->Get("E").constant->ToVector<int64_t>() == std::vector<int64_t>{5, 3});
}

TEST_CASE("a shape that cannot be counted is an error that names the node") {
  const auto what = [](const std::vector<int64_t>& shape) {
    Graph g;
    g.AddConstant("S", Tensor::From<int64_t>({static_cast<int64_t>(shape.size())}, shape));
    g.AddNode(OperatorDef("Filled").Name("big").Input("S").Output("F"));
    g.AddNode(OperatorDef("Relu").Input("F").Output("Y"));
    return ErrorOf([&] { InferGraph(GraphView(g)); });
  };
  const std::string place = "in the type of 'F', which node Filled 'big' (S) -> (F) makes";
  const int64_t half = int64_t{1} << 62;
  const Error bytes = what({half});
  CHECK(bytes.message() ==
        "a tensor float32[4611686018427387904] has more bytes than a 64-bit count can hold");
  CHECK(bytes.context() == std::vector<std::string>{place});
  CHECK(what({half / 4}).message() == "no Error was thrown");
}

// A fast kernel that does not take what shapes are made of.
class PickyTwiceOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    throw UnsupportedOperatorFeature("it never does");
  }
  bool RunOnDevice() override {
    Throw(ErrorCode::kOperatorFailed, "a kernel that refused was run");
  }
};
OPKIT_REGISTER_OPERATOR(DeviceType::kCPU, Twice, "picky", kDefault, PickyTwiceOp);

TEST_CASE("a known node is evaluated by a kernel that takes it") {
  Graph g;
  g.AddInput("X", kFloat, {5, 3});
  g.AddNode(OperatorDef("Extents").Input("X").Output("E"));
  g.AddNode(OperatorDef("Twice").Input("E").Output("T").Backends("picky"));
  g.AddNode(OperatorDef("Filled").Input("T").Output("F"));
  CHECK(ShapeOf(g, "F") == SymbolicShape{10, 6});
}

OPKIT_OPERATOR_SCHEMA(Boasts).NumInputs(1).NumOutputs(1).Infer([](auto& c) {
  c.SetOutput(0, DType::kInt64, {4});
});
OPKIT_REGISTER_CPU_OPERATOR(Boasts, TwiceOp);

TEST_CASE("an evaluated constant must have the inferred type and shape") {
  Graph g;
  g.AddInput("X", kFloat, {5, 3});
  g.AddNode(OperatorDef("Extents").Input("X").Output("E"));
  g.AddNode(OperatorDef("Boasts").Input("E").Output("B"));
  const std::string text = ErrorOf([&] { ShapeOf(g, "B"); }).what();
  CHECK(Contains(text, "value 'B' is int64[4], but node Boasts (E) -> (B) finds int64[2]"));
}

TEST_CASE("data that another node rewrites is not taken for known") {
  Graph g;
  g.AddInput("X", kFloat, {5, 3});
  g.AddNode(OperatorDef("Extents").Input("X").Output("E"));
  g.AddNode(OperatorDef("Add64InPlace").Input("E").Output("E"));
  g.AddNode(OperatorDef("Filled").Input("E").Output("F"));
  CHECK_FALSE(ShapeOf(g, "F").has_rank());
}
OPKIT_OPERATOR_SCHEMA(Add64InPlace)
    .NumInputs(1)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Add64InPlace, TwiceOp);

}  // namespace graph_inference_test
