// Schemas: arity, in-place, arguments, inference, cost, devices, and the message for each refusal.
#include "opkit/op/schema.hpp"

#include <doctest/doctest.h>

#include <climits>

#include "support/error_of.hpp"

namespace schema_test { namespace {

using opkit::AttributeType;
using opkit::Device;
using opkit::DeviceType;
using opkit::Dim;
using opkit::DType;
using opkit::ErrorCode;
using opkit::InferenceContext;
using opkit::OpCost;
using opkit::OperatorDef;
using opkit::OpSchema;
using opkit::Shape;
using opkit::Sym;
using opkit::SymbolicShape;
using opkit::Tensor;
using opkit::TensorInfo;

OpSchema Schema(const char* name = "Op") { return OpSchema(name, "schema.cc", 7); }

// A node with inputs "in0", "in1", … and outputs "out0", ….
OperatorDef Node(int inputs, int outputs) {
  OperatorDef def("Op");
  for (int i = 0; i < inputs; ++i) def.Input(opkit::StrCat("in", i));
  for (int i = 0; i < outputs; ++i) def.Output(opkit::StrCat("out", i));
  return def;
}

TEST_CASE("a schema is stateful only if it declares it") {
  CHECK_FALSE(OpSchema("Add", __FILE__, __LINE__).is_stateful());
  CHECK(OpSchema("Dropout", __FILE__, __LINE__).NumInputs(1).Stateful().is_stateful());
}

TEST_CASE("a schema without rules accepts any number of values") {
  const OpSchema schema = Schema();
  CHECK(schema.Verify(Node(0, 0)).empty());
  CHECK(schema.Verify(Node(20, 30)).empty());
  CHECK(schema.name() == "Op");
  CHECK(std::string(schema.file()) == "schema.cc");
  CHECK(schema.line() == 7);
  CHECK_FALSE(schema.has_inference());
  CHECK_FALSE(schema.has_cost());
}

TEST_CASE("an exact number of inputs and outputs is held to") {
  OpSchema schema = Schema();
  schema.NumInputs(2).NumOutputs(1);
  CHECK(schema.Verify(Node(2, 1)).empty());
  CHECK(schema.Verify(Node(1, 1)) == "Op has 1 inputs, expected 2");
  CHECK(schema.Verify(Node(3, 1)) == "Op has 3 inputs, expected 2");
  CHECK(schema.Verify(Node(2, 0)) == "Op has 0 outputs, expected 1");
  CHECK(schema.Verify(Node(2, 2)) == "Op has 2 outputs, expected 1");
}

TEST_CASE("a range of inputs, closed or open, is held to") {
  OpSchema schema = Schema();
  schema.NumInputs(1, 3).NumOutputs(1, 1 << 30);
  CHECK(schema.Verify(Node(1, 1)).empty());
  CHECK(schema.Verify(Node(3, 9)).empty());
  CHECK(schema.Verify(Node(0, 1)) == "Op has 0 inputs, expected 1 to 3");
  CHECK(schema.Verify(Node(4, 1)) == "Op has 4 inputs, expected 1 to 3");
  CHECK(schema.Verify(Node(2, 0)) == "Op has 0 outputs, expected at least 1");
}

TEST_CASE("a number of a set is held to") {
  OpSchema schema = Schema();
  schema.NumInputs({2, 4}).NumOutputs({1, 3});
  CHECK(schema.Verify(Node(2, 1)).empty());
  CHECK(schema.Verify(Node(4, 3)).empty());
  CHECK(schema.Verify(Node(3, 1)) == "Op has 3 inputs, expected one of [2, 4]");
  CHECK(schema.Verify(Node(2, 2)) == "Op has 2 outputs, expected one of [1, 3]");
}

TEST_CASE("a function decides which numbers are allowed") {
  OpSchema schema = Schema();
  schema.NumInputs([](int n) { return n % 2 == 0; }).NumOutputs([](int n) { return n > 1; });
  CHECK(schema.Verify(Node(6, 2)).empty());
  CHECK(schema.Verify(Node(3, 2)) ==
        "Op has 3 inputs, expected a number that its schema's function allows");
  CHECK(schema.Verify(Node(2, 1)) ==
        "Op has 1 outputs, expected a number that its schema's function allows");
}

TEST_CASE("arity: a relation between inputs and outputs") {
  OpSchema schema = Schema();
  schema.NumInputsOutputs([](int in, int out) { return out == in || out == in * 2; });
  CHECK(schema.Verify(Node(3, 3)).empty());
  CHECK(schema.Verify(Node(3, 6)).empty());
  CHECK(schema.Verify(Node(3, 4)) == "Op does not take 3 inputs together with 4 outputs");
}

TEST_CASE("the number of outputs follows from that of inputs") {
  OpSchema same = Schema();
  same.NumInputs(1, 4).SameNumberOfOutput();
  CHECK(same.Verify(Node(3, 3)).empty());
  CHECK(same.Verify(Node(3, 2)) == "Op has 2 outputs, expected 3 for 3 inputs");
  CHECK(same.CalculateOutput(2) == 2);

  OpSchema twice = Schema();
  twice.OutputCalculator([](int n) { return n * 2; });
  CHECK(twice.Verify(Node(2, 4)).empty());
  CHECK_FALSE(twice.Verify(Node(2, 2)).empty());
  CHECK(twice.CalculateOutput(5) == 10);

  CHECK(Schema().NumOutputs(3).CalculateOutput(9) == 3);
  CHECK(Schema().NumOutputs(1, 3).CalculateOutput(9) == -1);  // the inputs do not decide it
}

TEST_CASE("an argument is of the declared type, or an integer for a float") {
  OpSchema schema = Schema();
  schema.Arg<float>("alpha", "").Arg<std::vector<float>>("scales", "");
  CHECK(schema.Verify(Node(0, 0).Arg("alpha", 2)).empty());
  CHECK(schema.Verify(Node(0, 0).Arg("scales", std::vector<int>{1, 2})).empty());
  CHECK(schema.Verify(Node(0, 0).Arg("alpha", std::vector<int>{2})) ==
        "argument 'alpha' of Op is ints ([2]), expected float");
  CHECK(schema.Verify(Node(0, 0).Arg("alpha", "2")) ==
        "argument 'alpha' of Op is string (\"2\"), expected float");
}

TEST_CASE("in place: not allowed unless the schema declares it") {
  OpSchema schema = Schema();
  schema.NumInputs(1).NumOutputs(1);
  CHECK_FALSE(schema.CanInplace(0, 0));
  CHECK(schema.Verify(OperatorDef("Op", {"X"}, {"X"})) ==
        "Op may not run in place: input 0 and output 0 are both 'X'");
}

TEST_CASE("only the pairs that are allowed may run in place") {
  OpSchema schema = Schema();
  schema.NumInputs(2).NumOutputs(2).Inplace({{0, 0}, {1, 0}});
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"C", "D"})).empty());
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"A", "D"})).empty());
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"B", "D"})).empty());
  CHECK(schema.CanInplace(1, 0));
  CHECK_FALSE(schema.MustInplace(1, 0));
  CHECK_FALSE(schema.CanInplace(0, 1));
}

TEST_CASE("in place: the message names the output by the output's own index") {
  OpSchema schema = Schema();
  schema.Inplace({{0, 0}});
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B", "C"}, {"A", "B"})) ==
        "Op may not run in place: input 1 and output 1 are both 'B'");
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B", "C"}, {"Y", "Z", "W", "A"})) ==
        "Op may not run in place: input 0 and output 3 are both 'A'");
}

TEST_CASE("a function decides which pairs may run in place") {
  OpSchema schema = Schema();
  schema.Inplace([](int in, int out) { return in == out + 1; });
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"B"})).empty());
  CHECK_FALSE(schema.Verify(OperatorDef("Op", {"A", "B"}, {"A"})).empty());
  CHECK(Schema().OneToOneInplace().CanInplace(4, 4));
  CHECK_FALSE(Schema().OneToOneInplace().CanInplace(4, 3));
}

TEST_CASE("an enforced pair must run in place") {
  OpSchema schema = Schema();
  schema.NumInputs(2).NumOutputs(1).EnforceInplace({{1, 0}});
  CHECK(schema.CanInplace(1, 0));
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"B"})).empty());
  CHECK(schema.Verify(OperatorDef("Op", {"A", "B"}, {"C"})) ==
        "Op must run in place: input 1 is 'B' and output 0 is 'C'");
  CHECK(Schema().EnforceOneToOneInplace().MustInplace(2, 2));
  CHECK(Schema().EnforceOneToOneInplace().Verify(OperatorDef("Op", {"A"}, {"A"})).empty());
  CHECK_FALSE(Schema().EnforceInplace([](int, int) { return true; }).Verify(Node(1, 1)).empty());
}

TEST_CASE("in place: two values that are left out are not the same blob") {
  CHECK(Schema().Verify(OperatorDef("Op", {"A", ""}, {"", "B"})).empty());
}

TEST_CASE("arguments are required, typed and defaulted, and unknown ones are refused") {
  OpSchema schema = Schema();
  schema.Arg("mode", "any type will do")
      .Arg<float>("scale", "factor", 1.f)
      .RequiredArg<int64_t>("axis", "which axis")
      .Arg<std::vector<int>>("sizes", "extents");
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 0)).empty());
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 0).Arg("mode", "x").Arg("scale", 2.f)).empty());
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 0).Arg("mode", 3)).empty());

  CHECK(schema.Verify(Node(1, 1)) == "Op needs the argument 'axis' (which axis)");
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 1.5)) ==
        "argument 'axis' of Op is float (1.5), expected int");
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 0).Arg("sizes", 4)) ==
        "argument 'sizes' of Op is int (4), expected ints");
  CHECK(schema.Verify(Node(1, 1).Arg("axis", 0).Arg("sizes", std::vector<float>{})).empty());
  const std::string unknown = schema.Verify(Node(1, 1).Arg("axis", 0).Arg("scal", 2.f));
  CHECK(Contains(unknown, "Op has no argument 'scal' (did you mean 'scale'? known: "));
  CHECK(schema.AllowUnknownArgs().Verify(Node(1, 1).Arg("axis", 0).Arg("scal", 2.f)).empty());

  REQUIRE(schema.FindAttribute("scale"));
  CHECK(schema.FindAttribute("scale")->type == AttributeType::kFloat);
  CHECK(schema.FindAttribute("scale")->default_value->Get<float>() == 1.f);
  CHECK_FALSE(schema.FindAttribute("scale")->required);
  CHECK(schema.FindAttribute("axis")->required);
  CHECK(schema.FindAttribute("none") == nullptr);
}

TEST_CASE("an operator that declares no attributes takes none, unless it leaves them unchecked") {
  OpSchema schema = Schema();
  CHECK(schema.Verify(Node(1, 1)).empty());
  CHECK(schema.Verify(Node(1, 1).Arg("bogus", 1)) ==
        "Op has no argument 'bogus'; its schema declares none: .Arg<float>(\"name\", …) declares "
        "one, .AllowUncheckedAttributes() takes any");
  CHECK(Schema().AllowUncheckedAttributes().Verify(Node(1, 1).Arg("bogus", 1)).empty());
  schema.ParsesAttributes();  // until it declares one
  CHECK(schema.Verify(Node(1, 1).Arg("bogus", 1)).empty());
  schema.Arg("scale", "");
  CHECK(Contains(schema.Verify(Node(1, 1).Arg("bogus", 1)), "Op has no argument 'bogus'"));
}

TEST_CASE("a string attribute takes the values that its schema declares") {
  OpSchema schema = Schema();
  schema.Arg("mode", "which elements there are", {"valid", "same"});
  CHECK(schema.FindAttribute("mode")->default_value->Get<std::string>() == "valid");
  CHECK(schema.Verify(Node(1, 1)).empty());
  CHECK(schema.Verify(Node(1, 1).Arg("mode", "same")).empty());
  CHECK(schema.Verify(Node(1, 1).Arg("mode", "vlaid")) ==
        "argument 'mode' of Op is 'vlaid', which is none of its values (did you mean 'valid'? "
        "known: 'valid', 'same')");
  CHECK(schema.Verify(Node(1, 1).Arg("mode", 1)) ==
        "argument 'mode' of Op is int (1), expected string");
  schema.Arg<std::vector<std::string>>("modes", "").Values("modes", {"valid", "same"});
  CHECK(schema.Verify(Node(1, 1).Arg("modes", {"same", "valid"})).empty());
  CHECK(
      Contains(schema.Verify(Node(1, 1).Arg("modes", {"same", "soma"})), "'soma', which is none"));
  CHECK(Contains(schema.Values("mdoe", {"a"}).problem(), "has no argument 'mdoe' to give values"));
}

TEST_CASE("a default that is none of the values is the schema's problem, in either order") {
  const std::string told =
      "gives the argument 'function' the default 'tahn', which is none of its values (did you mean "
      "'tanh'?";
  OpSchema values_first = Schema(), default_first = Schema(), given = Schema();
  values_first.Arg("function", "", {"relu", "tanh"}).Default("function", "tahn");
  default_first.Arg<std::string>("function", "", std::string("tahn"))
      .Values("function", {"relu", "tanh"});
  for (OpSchema* schema : {&values_first, &default_first}) {
    CHECK(Contains(schema->problem(), told));
    CHECK(Contains(schema->Verify(Node(1, 1)), told));
    CHECK(Contains(schema->Verify(Node(1, 1).Arg("function", "tanh")), told));
    schema->Default("function", "tanh");
    CHECK(schema->Verify(Node(1, 1)).empty());
  }
  given.Arg<std::vector<std::string>>("functions", "").Values("functions", {"relu", "tanh"});
  CHECK(given.Default("functions", std::vector<std::string>{"tanh", "relu"}).problem().empty());
  CHECK(Contains(given.Default("functions", std::vector<std::string>{"tanh", "rleu"}).problem(),
                 "the default 'rleu', which is none of its values (did you mean 'relu'?"));
}

TEST_CASE("inference and cost functions that name no default get the schema's") {
  const TensorInfo kInfo(DType::kFloat32, Shape{2, 3});
  OpSchema schema = Schema();
  schema.Arg<int64_t>("times", "", 3).Arg<int64_t>("absent", "");
  schema.Infer([](InferenceContext& c) {
    c.SetOutput(0, c.input_dtype(0), {c.Arg<int64_t>("times")});
    if (c.args().Has("absent")) c.Arg<int64_t>("missing");
  });
  schema.Flops([](const InferenceContext& c) { return uint64_t(c.Arg<int64_t>("times")); });
  const auto rows = [&](const OperatorDef& def) {
    return schema.InferOutputs(def, {kInfo})[0].shape.ToShape().dim(0);
  };
  CHECK(rows(Node(1, 1)) == 3);
  CHECK(rows(Node(1, 1).Arg("times", 5)) == 5);
  CHECK(schema.has_cost());
  CHECK(schema.Cost(Node(1, 1), {kInfo}, {kInfo}).flops == 3);
  CHECK(ErrorOf([&] { rows(Node(1, 1).Arg("absent", 1)); }).code() == ErrorCode::kNotFound);
}

TEST_CASE("a string attribute with values may be one that a node must give") {
  OpSchema schema = Schema();
  schema.RequiredArg("mode", "how the borders are filled", {"valid", "same"});
  CHECK(schema.Verify(Node(1, 1).Arg("mode", "same")).empty());
  CHECK(schema.Verify(Node(1, 1)) == "Op needs the argument 'mode' (how the borders are filled)");
  CHECK(Contains(schema.Verify(Node(1, 1).Arg("mode", "smae")), "did you mean 'same'?"));
}

TEST_CASE("the error for a missing required attribute names the unknown one given in its place") {
  OpSchema schema = Schema();
  schema.RequiredArg<float>("scale", "what to multiply by").Arg<float>("bias", "", 0.f);
  CHECK(schema.Verify(Node(1, 1).Arg("scael", 2.f).Arg("bias", 1.f)) ==
        "Op needs the argument 'scale' (what to multiply by); 'scael' was given, which is not "
        "declared (did you mean 'scale'? known: 'scale', 'bias')");
  CHECK(schema.Verify(Node(1, 1).Arg("bias", 1.f)) ==
        "Op needs the argument 'scale' (what to multiply by)");
}

TEST_CASE("the message for any number of inputs does not show INT_MAX") {
  OpSchema schema = Schema();
  schema.NumInputs(1, INT_MAX).NumOutputs(1);
  CHECK(schema.Verify(Node(100, 1)).empty());
  CHECK(schema.Verify(Node(0, 1)) == "Op has 0 inputs, expected at least 1");
}

TEST_CASE("ArgIsTest declares is_test") {
  OpSchema schema = Schema();
  schema.ArgIsTest("1 in inference");
  CHECK(schema.Verify(Node(1, 1).Arg("is_test", 1)).empty());
  CHECK(schema.FindAttribute("is_test")->doc == "1 in inference");
}

const TensorInfo kFloat23(DType::kFloat32, Shape{2, 3});
const TensorInfo kInt5(DType::kInt32, Shape{5});

std::vector<std::string> Inferred(const OpSchema& schema, const OperatorDef& def,
                                  std::vector<TensorInfo> inputs) {
  std::vector<std::string> out;
  for (const TensorInfo& info : schema.InferOutputs(def, std::move(inputs)))
    out.push_back(ToString(info));
  return out;
}
using Infos = std::vector<std::string>;

TEST_CASE("inference: none declared leaves the outputs unknown") {
  CHECK(Inferred(Schema(), Node(1, 2), {kFloat23}) == Infos{"?[rank unknown]", "?[rank unknown]"});
}

TEST_CASE("an output takes dtype and shape of the input that is named") {
  CHECK(Inferred(Schema().IdenticalTypeAndShape(), Node(2, 2), {kFloat23, kInt5}) ==
        Infos{"float32[2, 3]", "int32[5]"});
  CHECK(Inferred(Schema().IdenticalTypeAndShapeOfInput(1), Node(2, 2), {kFloat23, kInt5}) ==
        Infos{"int32[5]", "int32[5]"});
  CHECK(Inferred(Schema().IdenticalTypeAndShapeOfMultipleInputs({1, 0}), Node(2, 2),
                 {kFloat23, kInt5}) == Infos{"int32[5]", "float32[2, 3]"});
  CHECK(Inferred(Schema().IdenticalTypeAndShapeOfInputDim(0, 1), Node(1, 1), {kFloat23}) ==
        Infos{"float32[3]"});
  const TensorInfo symbolic(DType::kFloat32, {Sym("N"), Dim()});
  CHECK(Inferred(Schema().IdenticalTypeAndShape(), Node(1, 1), {symbolic}) ==
        Infos{"float32[N, ?]"});
  CHECK(Inferred(Schema().IdenticalTypeAndShapeOfInputDim(0, 0), Node(1, 1), {symbolic}) ==
        Infos{"float32[N]"});
  CHECK(Inferred(Schema().IdenticalTypeAndShapeOfInputDim(0, 0), Node(1, 1), {TensorInfo()}) ==
        Infos{"?[?]"});
}

TEST_CASE("inference: an axis that the input does not have is an Error") {
  OpSchema schema = Schema();
  schema.IdenticalTypeAndShapeOfInputDim(0, 2);
  const opkit::Error error = ErrorOf([&] { schema.InferOutputs(Node(1, 1), {kFloat23}); });
  CHECK(error.message() == "input 0 has shape [2, 3], which has no axis 2");
  CHECK(
      Contains(error.what(), "in shape inference of Op (in0) -> (out0) with inputs float32[2, 3]"));
}

TEST_CASE("outputs of a scalar type have no axes") {
  CHECK(Inferred(Schema().ScalarType(DType::kInt64), Node(1, 2), {kFloat23}) ==
        Infos{"int64[]", "int64[]"});
}

TEST_CASE("inference: a cast, read from an argument") {
  OpSchema schema = Schema("Cast");
  schema.Infer([](InferenceContext& c) {
    c.SetOutput(0, opkit::DTypeFromName(c.Arg<std::string>("to", "float32")), c.input_shape(0));
  });
  CHECK(Inferred(schema, Node(1, 1).Arg("to", "float64"), {kInt5}) == Infos{"float64[5]"});
  CHECK(Inferred(schema, Node(1, 1), {kInt5}) == Infos{"float32[5]"});
}

TEST_CASE("inference: symbolic extents flow through arithmetic") {
  OpSchema schema = Schema("MatMul");
  schema.Infer([](InferenceContext& c) {
    const SymbolicShape &a = c.input_shape(0), &b = c.input_shape(1);
    if (!a.has_rank() || !b.has_rank()) return;
    OPKIT_ENFORCE(Dim::Compatible(a[1], b[0]), "inner extents differ: ", a[1], " and ", b[0]);
    c.SetOutput(0, c.input_dtype(0), {a[0], b[1]});
  });
  const TensorInfo a(DType::kFloat32, {Sym("N"), 64}), b(DType::kFloat32, {64, Sym("M")});
  CHECK(Inferred(schema, Node(2, 1), {a, b}) == Infos{"float32[N, M]"});
  CHECK(Inferred(schema, Node(2, 1), {a, TensorInfo()}) == Infos{"?[rank unknown]"});
  const TensorInfo wrong(DType::kFloat32, {32, Sym("M")});
  const opkit::Error error = ErrorOf([&] { schema.InferOutputs(Node(2, 1), {a, wrong}); });
  CHECK(Contains(error.message(), "inner extents differ: 64 and 32"));
  CHECK(Contains(error.what(), "with inputs float32[N, 64] float32[32, M]"));
}

TEST_CASE("inference: the data of a constant input") {
  OpSchema schema = Schema("Reshape");
  schema.Infer([](InferenceContext& c) {
    if (const Tensor* shape = c.input_constant(1)) {
      std::vector<Dim> dims;
      for (int64_t extent : shape->ToVector<int64_t>()) dims.emplace_back(extent);
      c.SetOutput(0, c.input_dtype(0), SymbolicShape(dims));
    } else {
      c.SetOutput(0, c.input_dtype(0), SymbolicShape());
    }
  });
  const Tensor shape = Tensor::From<int64_t>({2}, {3, 2});
  CHECK(Inferred(schema, Node(2, 1), {kFloat23, TensorInfo::OfConstant(shape)}) ==
        Infos{"float32[3, 2]"});
  CHECK(Inferred(schema, Node(2, 1), {kFloat23, TensorInfo::Of(shape)}) ==
        Infos{"float32[rank unknown]"});
}

TEST_CASE("inference: NeedsAllInputShapes is not called before all are known") {
  OpSchema schema = Schema();
  schema.NeedsAllInputShapes().Infer([](InferenceContext& c) {
    c.SetOutput(0, c.input_dtype(0), Shape{c.input_shape(0).ToShape().numel()});
  });
  CHECK(Inferred(schema, Node(1, 1), {kFloat23}) == Infos{"float32[6]"});
  CHECK(Inferred(schema, Node(1, 1), {TensorInfo(DType::kFloat32, {Sym("N"), 3})}) ==
        Infos{"?[rank unknown]"});
}

TEST_CASE("inference: a function that needs an unknown shape leaves the outputs unknown") {
  for (const auto& infer :
       {+[](InferenceContext& c) { c.SetOutput(0, c.input_dtype(0), {c.input_shape(0).rank()}); },
        +[](InferenceContext& c) {
          c.SetOutput(0, c.input_dtype(0), {c.input_shape(0)[0].value()});
        }}) {
    OpSchema schema = Schema();
    schema.Infer(infer);
    CHECK(Inferred(schema, Node(1, 1), {TensorInfo(DType::kFloat32, SymbolicShape())}) ==
          Infos{"?[rank unknown]"});
    CHECK(Inferred(schema, Node(1, 1), {kFloat23}) == Infos{"float32[2]"});
  }
  // Where everything is known it is the author's mistake.
  OpSchema wrong = Schema();
  wrong.Infer([](InferenceContext& c) { c.output(0).shape.rank(); });
  CHECK(Contains(ErrorOf([&] { Inferred(wrong, Node(1, 1), {kFloat23}); }).what(),
                 "the rank is not known yet\n  in shape inference of Op"));
}

TEST_CASE("inference: known types of an output flow back to an identical input") {
  const OperatorDef def = Node(1, 1);
  OpSchema schema = Schema();
  schema.IdenticalTypeAndShape();
  InferenceContext c(def, {TensorInfo(DType::kFloat32, {Sym("N"), Dim()})},
                     {TensorInfo(DType::kUndefined, {Dim(), 8})});
  schema.Infer(c);
  CHECK(ToString(c.output(0)) == "float32[N, 8]");
  CHECK(ToString(c.input(0)) == "float32[N, 8]");
}

TEST_CASE("inference: a contradiction shows both sides and the node") {
  const OperatorDef def = Node(1, 1);
  OpSchema schema = Schema();
  schema.IdenticalTypeAndShape();
  InferenceContext c(def, {kFloat23}, {TensorInfo(DType::kFloat32, Shape{2, 4})});
  const opkit::Error error = ErrorOf([&] { schema.Infer(c); });
  CHECK(error.message() ==
        "output 0 of Op (in0) -> (out0) is float32[2, 4], but inference finds "
        "float32[2, 3]");
  CHECK(Contains(error.what(), "in shape inference of Op"));
}

TEST_CASE("cost: a matrix product of 10 x 10 by 10 x 10 is 2000 flops") {
  OpSchema schema = Schema();
  schema.NumInputs(2).NumOutputs(1).Cost(
      [](const OperatorDef&, const std::vector<TensorInfo>& in, const std::vector<TensorInfo>&) {
        OpCost cost;
        cost.flops = static_cast<uint64_t>(2 * in[0].shape[0].value() * in[0].shape[1].value() *
                                           in[1].shape[1].value());
        cost.params_bytes = OpSchema::Bytes(in[1]);
        return cost;
      });
  const TensorInfo m(DType::kFloat32, Shape{10, 10});
  const OpCost cost = schema.Cost(Node(2, 1), {m, m}, {m});
  CHECK(cost.flops == 2000);
  CHECK(cost.params_bytes == 400);
}

TEST_CASE("cost: pointwise counts elements and bytes, never the numbers of an enumeration") {
  OpSchema schema = Schema();
  schema.PointwiseCost(2);
  const TensorInfo in(DType::kFloat64, Shape{10, 10}), out(DType::kFloat16, Shape{10, 10});
  const OpCost cost = schema.Cost(Node(2, 1), {in, in}, {out});
  CHECK(cost.flops == 200);
  CHECK(cost.bytes_read == 1600);
  CHECK(cost.bytes_written == 200);
  CHECK(cost.params_bytes == 0);
  const OpCost bytes = schema.Cost(Node(1, 1), {TensorInfo(DType::kInt8, Shape{7})},
                                   {TensorInfo(DType::kInt8, Shape{7})});
  CHECK(bytes.bytes_read == 7);
  CHECK(bytes.flops == 14);
}

TEST_CASE("cost: without a function the traffic, and nothing where shapes are unknown") {
  const OpCost cost = Schema().Cost(Node(1, 1), {kFloat23}, {kInt5});
  CHECK(cost.flops == 0);
  CHECK(cost.bytes_read == 24);
  CHECK(cost.bytes_written == 20);
  const TensorInfo unknown(DType::kFloat32, {Sym("N"), 3});
  CHECK(Schema().Cost(Node(1, 1), {unknown}, {unknown}).bytes_read == 0);
}

TEST_CASE("devices: the node's by default, or the result of a function") {
  const Device cuda{DeviceType::kCUDA, 1};
  const OperatorDef def = Node(2, 1).Device(cuda);
  auto [inputs, outputs] = Schema().InferDevices(def);
  CHECK(inputs == std::vector<Device>{cuda, cuda});
  CHECK(outputs == std::vector<Device>{cuda});
  OpSchema copy = Schema("CopyToCPU");
  copy.InputsCanCrossDevices().DeviceInferenceFunction([](const OperatorDef& node) {
    return OpSchema::DevicePlacement{{node.device(), node.device()}, {Device{}}};
  });
  CHECK(copy.InferDevices(def).second == std::vector<Device>{Device{}});
  CHECK(copy.inputs_can_cross_devices());
  CHECK_FALSE(Schema().inputs_can_cross_devices());
}

TEST_CASE("docs: names, dtypes and descriptions of values; privacy; FillUsing") {
  auto documented = [](OpSchema& schema) {
    schema.Doc("Does it.").Input(1, "B", "second", {DType::kFloat32}).Output(0, "Y", "result");
  };
  OpSchema schema = Schema();
  schema.FillUsing(documented).Private();
  CHECK(schema.doc() == "Does it.");
  REQUIRE(schema.inputs().size() == 2);
  CHECK(schema.inputs()[0].name.empty());
  CHECK(schema.inputs()[1].name == "B");
  CHECK(schema.inputs()[1].dtypes == std::vector<DType>{DType::kFloat32});
  CHECK(schema.outputs()[0].doc == "result");
  CHECK(schema.is_private());
  CHECK_FALSE(Schema().is_private());
}

TEST_CASE("a schema's own function makes test inputs") {
  OpSchema schema = Schema();
  CHECK(schema.MakeTestInputs(DType::kFloat32, 1).empty());
  schema.TestInputs([](DType dtype, uint64_t seed) {
    return std::vector<Tensor>{Tensor(Shape{static_cast<int64_t>(seed)}, dtype)};
  });
  const std::vector<Tensor> made = schema.MakeTestInputs(DType::kFloat64, 3);
  REQUIRE(made.size() == 1);
  CHECK(made[0].dtype() == DType::kFloat64);
  CHECK(made[0].shape() == Shape{3});
}

TEST_CASE("a left-out optional input is no shape to wait for") {
  OpSchema schema = Schema();
  schema.NumInputs(1, 2).NeedsAllInputShapes().IdenticalTypeAndShapeOfInput(0);
  const auto outputs = schema.InferOutputs(OperatorDef("Op", {"x", ""}, {"y"}),
                                           {TensorInfo(DType::kFloat32, Shape{2}), TensorInfo()});
  CHECK(outputs[0].shape == SymbolicShape(Shape{2}));
}

TEST_CASE("an axis of the input may be counted from the end, and must be there") {
  OpSchema schema = Schema();
  schema.IdenticalTypeAndShapeOfInputDim(0, -1);
  const OperatorDef def("Op", {"x"}, {"y"});
  CHECK(schema.InferOutputs(def, {TensorInfo(DType::kFloat32, Shape{2, 3})})[0].shape ==
        SymbolicShape(Shape{3}));
  CHECK(ErrorOf([&] { schema.InferOutputs(def, {TensorInfo(DType::kFloat32, Shape{})}); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE(
    "a default for an argument that was not declared is found at the first use, not before main") {
  OpSchema schema = Schema();
  schema.Default("scael", 1.f);
  CHECK(schema.Verify(OperatorDef("Op", {"x"}, {"y"}))
            .find("has no argument 'scael' to give a default") != std::string::npos);
}

}  // namespace
}  // namespace schema_test
