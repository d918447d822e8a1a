#include "opkit/graph/debug/compare_runs.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "graph/nodes.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace compare_runs_test {
namespace {

using namespace opkit;
using namespace graph_nodes;

// y = x + 1, but for the backend "mistaken", which forgets the last element.
template <bool kForgets>
class PlusOneOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] =
          x.data<float>()[i] + (kForgets && i == x.numel() - 1 ? 0.f : 1.f);
    return true;
  }
};
OPERATOR_SCHEMA(PlusOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(PlusOne, PlusOneOp<false>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(PlusOne, mistaken, PlusOneOp<true>);

// Makes the tensor that its attribute is.
class EmitOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, def().args().Get<Tensor>("value"));
    return true;
  }
};
OPERATOR_SCHEMA(Emit).NumInputs(1).NumOutputs(1).Arg<Tensor>("value", "what it makes");
REGISTER_CPU_OPERATOR(Emit, EmitOp);

OperatorDef PlusOne(const char* in, const char* out, const char* backend) {
  return OperatorDef("PlusOne", {in}, {out}).Backends(backend).Name(StrCat("to ", out));
}
Graph Begin(std::initializer_list<OperatorDef> nodes, SymbolicShape shape = {2, 2}) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, std::move(shape));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("Y");
  return graph;
}
const NamedTensor kX{"X", Tensor::From<float>({2, 2}, {1, 2, 3, 4})};

RunComparison CompareTensors(const Tensor& found, const Tensor& expected,
                             const CompareRunsOptions& options = {}) {
  const auto plan = [](const Tensor& value) {
    return Compile(Begin({OperatorDef("Emit", {"X"}, {"Y"}).Arg("value", value)}));
  };
  return CompareRuns(plan(found), plan(expected), {kX}, options);
}

}  // namespace

TEST_CASE("the first node with a different value is named, with the element") {
  const auto graph = [](const char* backend) {
    return Begin({Scale("X", "a", 2), PlusOne("a", "b", backend), Scale("b", "Y", 2)});
  };
  const Plan wrong = Compile(graph("mistaken")), right = Compile(graph("reference"));
  const RunComparison runs = CompareRuns(wrong, right, {kX});
  CHECK_FALSE(runs.same());
  REQUIRE(runs.values.size() == 3);
  CHECK(runs.first_different == 1);
  CHECK_FALSE(runs.values[0].differs);
  CHECK(runs.values[0].same_kernel);
  const ComparedValue& first = runs.values[1];
  CHECK(first.name == "b");
  CHECK(first.node == "PlusOne 'to b'");
  CHECK(first.backend == "mistaken");
  CHECK(first.expected_backend == "reference");
  CHECK_FALSE(first.same_kernel);
  CHECK(first.elements == 4);
  CHECK(first.different == 1);
  CHECK(first.first == std::vector<int64_t>{1, 1});
  CHECK(first.found == "8");
  CHECK(first.expected == "9");
  CHECK(first.max_abs == 1);
  CHECK(first.max_rel == doctest::Approx(1. / 9));
  CHECK_FALSE(runs.values[2].differs);  // on the same input
  CHECK(runs.values[2].max_abs == 0);
  CHECK(runs.Verdict() ==
        "the first value that differs beyond atol 1e-05 + rtol 0.001 * |expected| is 'b' of node "
        "PlusOne 'to b' at [1, 1]: 8 by mistaken, expected 9 by reference");
  const std::string text = ToString(runs);
  CHECK(Contains(text,
                 "b      PlusOne 'to b'  mistaken   reference          1    0.111     1 of 4  "
                 "[1, 1]\n"));
  CHECK(Contains(text, "\n3 values compared, 2 of them of the same kernel in both runs\n"));
  CHECK(Contains(text, runs.Verdict()));

  const RunComparison same = CompareRuns(right, right, {kX});
  CHECK(same.same());
  CHECK(Contains(ToString(same), "\nno value differs beyond atol 1e-05"));
  CHECK(CompareRuns(wrong, right, {kX}, {.atol = 2}).same());

  const RunComparison apart = CompareRuns(wrong, right, {kX}, {.node_by_node = false});
  CHECK(apart.first_different == 1);
  CHECK(apart.values[2].differs);  // what follows is wrong too
  CHECK(apart.values[2].max_abs == 2);
}

TEST_CASE("node by node, a constant that a node returns as its output stays unchanged") {
  // Identity shares its input's memory. Nothing folds the nodes: the plans have no passes.
  const PassList none;
  const auto plan = [&](float weight) {
    Graph graph = Begin({OperatorDef("Identity", {"w"}, {"a"}),
                         OperatorDef("Identity", {"a"}, {"b"}), Add("X", "b", "Y")});
    graph.AddConstant("w", Tensor::From<float>({2, 2}, {weight, 0, 0, 0}));
    return Compile(graph, {.passes = &none});
  };
  const Plan one = plan(1), two = plan(2);
  CHECK(CompareRuns(one, two, {kX}).values.size() == 3);
  CHECK(FloatsOf(*two.graph().FindConstant("w")) == Floats{2, 0, 0, 0});
  CHECK(FloatsOf(*one.graph().FindConstant("w")) == Floats{1, 0, 0, 0});
}

TEST_CASE("node by node, in other layouts and in place") {
  const auto in = [](const char* layout, const char* from, const char* to) {
    return OperatorDef("InLayouts", {from}, {to}).Arg("a", layout).Arg("y", layout);
  };
  const auto plan = [&](const char* backend) {
    return Compile(Begin({in("A", "X", "P"), PlusOne("P", "Q", backend), in("B", "Q", "R"),
                          Scale("R", "S", 2), Relu("S", "Y")}),
                   {.threads = 1});
  };
  const RunComparison runs = CompareRuns(plan("mistaken"), plan("reference"), {kX});
  REQUIRE(runs.values.size() == 5);
  for (size_t i = 0; i < 5; ++i) CHECK(runs.values[i].differs == (i == 1));
}

TEST_CASE("a value that another operator makes is of that operator") {
  const Plan plan = Compile(Begin({Scale("X", "Y", 1)}));
  const RunComparison runs = CompareRuns(plan, Compile(Begin({Relu("X", "Y")})), {kX});
  REQUIRE(runs.values.size() == 1);
  CHECK(runs.values[0].expected_backend == "reference");
  CHECK(runs.values[0].expected_operator == "Relu");
  CHECK(Contains(ToString(runs), "Y      Scale  reference  Relu of reference  "));
  const RunComparison wrong = CompareRuns(plan, Compile(Begin({Relu("X", "Y")})),
                                          {{"X", Tensor::From<float>({2, 2}, {1, 2, 3, -4})}});
  CHECK(Contains(wrong.Verdict(), ": -4 by reference, expected 0 by Relu of reference"));
  CHECK(CompareRuns(plan, plan, {kX}).values[0].expected_operator.empty());
}

TEST_CASE("tolerances decide which elements differ") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto differ = [](std::vector<float> found, std::vector<float> expected) {
    return CompareTensors(Vector(found), Vector(expected)).values[0].different;
  };
  CHECK(differ({kNan, 1}, {kNan, 1}) == 0);
  CHECK(differ({kNan, 1, kNan}, {1, kNan, kNan}) == 2);
  CHECK(differ({kInfinity, -kInfinity}, {kInfinity, -kInfinity}) == 0);
  CHECK(differ({kInfinity, 1, kInfinity, kNan}, {-kInfinity, kInfinity, 1, kInfinity}) == 4);
  CHECK(differ({0.f, 1e-6f, 1.0005f}, {-0.f, 0.f, 1.f}) == 0);
  CHECK(differ({2e-4f, 1.002f}, {0, 1}) == 2);
  CHECK(CompareTensors(Vector({kNan}), Vector({1})).values[0].found == "nan");
  CHECK(std::isinf(CompareTensors(Vector({kNan}), Vector({1})).values[0].max_abs));

  const RunComparison rounded = CompareTensors(Vector({1.0005f}), Vector({1}));
  CHECK(rounded.same());
  CHECK(rounded.values[0].max_rel == doctest::Approx(0.0005).epsilon(1e-3));
  // Integers and bools are exact, up to the largest.
  const int64_t large = (int64_t{1} << 62) + 1;
  CHECK_FALSE(CompareTensors(Vector<int64_t>({large}), Vector<int64_t>({large - 1})).same());
  CHECK_FALSE(CompareTensors(Vector<uint8_t>({1}), Vector<uint8_t>({2}), {.atol = 5}).same());
  CHECK(CompareTensors(Tensor::Scalar(true), Tensor::Scalar(true)).same());
  CHECK(CompareTensors(Tensor::Scalar(true), Tensor::Scalar(false)).values[0].expected == "false");
  CHECK(CompareTensors(Vector({}), Vector({})).same());
}

TEST_CASE("values of different types differ, and no element is compared") {
  const RunComparison types = CompareTensors(Vector({1}), Vector<int32_t>({1}));
  CHECK(types.first_different == 0);
  CHECK(types.values[0].different == 0);
  CHECK(Contains(types.Verdict(), "node Emit: float32[1] by reference, expected int32[1] by"));
  CHECK(Contains(ToString(types), "float32[1], not int32[1]"));
  CHECK_FALSE(CompareTensors(Vector({1}), Vector({1, 2})).same());
}

TEST_CASE("strings are equal or differ, without a distance") {
  const auto words = [](const char* second) {
    return Tensor::From<std::string>({1, 3}, {"a", second, "c"});
  };
  CHECK(CompareTensors(words("b"), words("b")).same());
  const RunComparison runs = CompareTensors(words("b"), words(""));
  const ComparedValue& value = runs.values[0];
  CHECK(value.elements == 3);
  CHECK(value.different == 1);
  CHECK(value.max_abs == 0);
  CHECK(value.first == std::vector<int64_t>{0, 1});
  CHECK(Contains(runs.Verdict(), "node Emit at [0, 1]: 'b' by reference, expected '' by"));
  CHECK(Contains(ToString(runs), "reference                         1 of 3  [0, 1]\n"));
  const std::string longest(40, 'x');
  CHECK(CompareTensors(words((longest + "yz").c_str()), words(longest.c_str())).values[0].found ==
        StrCat("'", longest, "...'"));
}

TEST_CASE("the elements of sequences and optional values are compared one by one") {
  const auto differ = [](const Tensor& found, const Tensor& expected) {
    return CompareTensors(found, expected).values[0];
  };
  const Tensor parts = MakeSequence({Vector({1, 2}), Vector({3})});
  CHECK_FALSE(differ(parts, MakeSequence({Vector({1, 2}), Vector({3})})).differs);
  CHECK_FALSE(differ(MakeSequence({}), MakeSequence({})).differs);
  const ComparedValue other = differ(parts, MakeSequence({Vector({1, 2}), Vector({5})}));
  CHECK(other.elements == 3);
  CHECK(other.different == 1);
  CHECK(other.max_abs == 2);
  CHECK(other.first == std::vector<int64_t>{1, 0});
  CHECK(other.found == "3");

  const ComparedValue longer = differ(parts, MakeSequence({Vector({1, 2})}));
  CHECK(longer.different == 0);
  CHECK(longer.found == "sequence[2]");
  CHECK(longer.expected == "sequence[1]");
  const ComparedValue shapes = differ(parts, MakeSequence({Vector({1, 0}), Vector({3, 4})}));
  CHECK(shapes.elements == 3);
  CHECK(shapes.different == 2);
  CHECK(shapes.first == std::vector<int64_t>{0, 1});
  CHECK(shapes.found == "2");
  const ComparedValue types = differ(parts, MakeSequence({Vector({1, 2}), Vector({3, 4})}));
  CHECK(types.first == std::vector<int64_t>{1});
  CHECK(types.found == "float32[1]");
  CHECK(types.expected == "float32[2]");

  CHECK_FALSE(differ(MakeOptional(parts), MakeOptional(parts)).differs);
  CHECK(differ(MakeOptional(parts), MakeOptional(std::nullopt)).expected == "optional[0]");
  CHECK(differ(MakeOptional(parts), MakeOptional(MakeSequence({Vector({1, 7}), Vector({3})})))
            .first == std::vector<int64_t>{0, 0, 1});
}

TEST_CASE("open shapes, inputs that a run rewrites, and values of one run alone") {
  const Graph open = Begin({Scale("X", "a", 2), Relu("a", "Y")}, {Sym("N"), 2});
  CHECK(CompareRuns(Compile(open), Compile(open), {kX}).values.size() == 2);

  const Graph rewrites = Begin({Scale("X", "s", 1), Accumulate("X", "s"), Scale("X", "Y", 2)});
  const NamedTensor x{"X", kX.tensor.Contiguous()};
  CHECK(CompareRuns(Compile(rewrites), Compile(rewrites), {x}).same());
  CHECK(FloatsOf(x.tensor) == Floats{1, 2, 3, 4});

  const Graph renamed = Begin({Scale("X", "b", 2), Relu("b", "Y")});
  const RunComparison runs = CompareRuns(Compile(open), Compile(renamed), {kX});
  CHECK(runs.values.size() == 1);
  CHECK(runs.not_compared == std::vector<std::string>{"b", "a"});
  CHECK(Contains(ToString(runs), "; 2 are in one run alone\n"));
}

TEST_CASE("runs that cannot be compared are an Error") {
  const Plan plan = Compile(Begin({Relu("X", "Y")}));
  Graph other;
  other.AddInput("X", DType::kFloat32, {2, 2});
  other.AddNode(Relu("X", "Z"));
  other.AddOutput("Z");
  const Error apart = ErrorOf([&] { CompareRuns(plan, Compile(other), {kX}); });
  CHECK(apart.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(apart.message(), "the two plans have no value in common"));
  for (const double wrong : {-1., std::numeric_limits<double>::quiet_NaN()})
    CHECK(ErrorOf([&] { CompareRuns(plan, plan, {kX}, {.atol = wrong}); }).code() ==
          ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { CompareRuns(plan, plan, {}); }).code() == ErrorCode::kInvalidArgument);
}

}  // namespace compare_runs_test
