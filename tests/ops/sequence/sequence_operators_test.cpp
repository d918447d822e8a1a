// SequenceAt, SequenceConstruct, SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength.
#include "opkit/ops/sequence/sequence_operators.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/loops/loop.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/sequence/optional_operators.hpp"
#include "support/error_of.hpp"

namespace sequence_operators_test { namespace {

using namespace opkit;
using Floats = std::vector<float>;

Tensor Vector(const Floats& values) {
  return Tensor::From<float>({static_cast<int64_t>(values.size())}, values);
}
Tensor Number(int64_t value) { return Tensor::Scalar<int64_t>(value); }
Tensor Run(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke(op, inputs, std::move(args))[0];
}
// The first number of each element.
Floats FirstOf(const Tensor& sequence) {
  Floats out;
  for (const Tensor& element : ElementsOf(sequence)) out.push_back(element.data<float>()[0]);
  return out;
}
Error Refused(const std::string& op, const std::vector<Tensor>& inputs) {
  return ErrorOf([&] { Run(op, inputs); });
}

TEST_CASE("sequences are made, read, and grow and shrink at any position") {
  const Tensor a = Vector({1, 2}), b = Vector({3}), c = Vector({4});
  const Tensor two = Run("SequenceConstruct", {a, b});
  CHECK(FirstOf(two) == Floats{1, 3});
  CHECK(!ElementsOf(two)[0].SharesMemoryWith(a));
  CHECK(FirstOf(Run("SequenceInsert", {two, c})) == Floats{1, 3, 4});
  CHECK(FirstOf(Run("SequenceInsert", {two, c, Number(0)})) == Floats{4, 1, 3});
  CHECK(FirstOf(Run("SequenceInsert", {two, c, Number(-1)})) == Floats{1, 4, 3});
  CHECK(FirstOf(Run("SequenceInsert", {two, c, Number(2)})) == Floats{1, 3, 4});
  CHECK(FirstOf(Run("SequenceErase", {two})) == Floats{1});
  CHECK(FirstOf(Run("SequenceErase", {two, Number(-2)})) == Floats{3});
  CHECK(Run("SequenceAt", {two, Number(0)}).ToVector<float>() == Floats{1, 2});
  CHECK(Run("SequenceAt", {two, Tensor::Scalar<int32_t>(-1)}).ToVector<float>() == Floats{3});
  CHECK(Run("SequenceLength", {two}).data<int64_t>()[0] == 2);
  const Tensor none = Invoke("SequenceEmpty", {}, {{"dtype", 8}}, {.device = Device{}})[0];
  CHECK(ElementsOf(none).empty());
  const Tensor texts = Run("SequenceInsert", {none, Tensor::From<std::string>({1}, {"x"})});
  CHECK(Run("SequenceAt", {texts, Number(0)}).ToVector<std::string>()[0] == "x");
}

TEST_CASE("positions outside, other dtypes and other values are refused") {
  const Tensor two = Run("SequenceConstruct", {Vector({1}), Vector({2})});
  CHECK(Refused("SequenceAt", {two, Number(2)}).message() ==
        "SequenceAt: position 2 is outside a sequence of 2 elements");
  CHECK(Refused("SequenceAt", {two, Number(-3)}).code() == ErrorCode::kOutOfRange);
  CHECK(Refused("SequenceInsert", {two, Vector({1}), Number(3)}).code() == ErrorCode::kOutOfRange);
  CHECK(Refused("SequenceErase", {two, Number(2)}).code() == ErrorCode::kOutOfRange);
  CHECK(Refused("SequenceErase", {MakeSequence({})}).code() == ErrorCode::kOutOfRange);
  CHECK(Refused("SequenceAt", {two, Tensor::From<int64_t>({2}, {0, 1})}).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(Refused("SequenceInsert", {two, Number(1)}).message() ==
        "SequenceInsert: a sequence of float32 has no element of int64");
  CHECK(Refused("SequenceConstruct", {Vector({1}), Number(1)}).code() == ErrorCode::kTypeMismatch);
  CHECK(Refused("SequenceLength", {Vector({1})}).code() == ErrorCode::kTypeMismatch);
}

// Takes a sequence and a condition. Returns the sequence with a tensor behind it, or as it is; and
// twice the last element.
Graph SequenceGraph() {
  Graph longer, same;
  longer.AddInput("s", DType::kSequence, {Dim()}).AddConstant("one", Vector({7}));
  longer.AddNode(OperatorDef("SequenceInsert", {"s", "one"}, {"more"}));
  longer.AddOutput("more");
  same.AddInput("s", DType::kSequence, {Dim()});
  same.AddNode(OperatorDef("Identity", {"s"}, {"still"}));
  same.AddOutput("still");
  Graph graph;
  Graph::Input sequence{"s", detail::SequenceInfo(DType::kFloat32)};
  graph.AddInput(sequence).AddInput("longer", DType::kBool, Shape{});
  graph.AddConstant("last", Number(-1));
  OperatorDef branch("If", {"longer", "s"}, {"t"}, {{"captures", std::vector<std::string>{"s"}}});
  branch.Subgraph("then_branch", MakeSubgraph(longer)).Subgraph("else_branch", MakeSubgraph(same));
  graph.AddNode(branch);
  graph.AddNode(OperatorDef("SequenceAt", {"t", "last"}, {"x"}));
  graph.AddNode(OperatorDef("Add", {"x", "x"}, {"y"}));
  graph.AddOutput("t").AddOutput("y");
  return graph;
}

TEST_CASE("a plan takes and returns sequences, and an If chooses between them") {
  Executor executor(Compile(SequenceGraph()));
  const GraphView view(executor.plan().graph());
  const Tensor given = MakeSequence({Vector({1}), Vector({2, 3})});
  const NamedTensors same = executor.Run({{"s", given}, {"longer", Tensor::Scalar(false)}});
  CHECK(FirstOf(same.Get("t")) == Floats{1, 2});
  CHECK(same.Get("y").ToVector<float>() == Floats{4, 6});
  const NamedTensors longer = executor.Run({{"s", given}, {"longer", Tensor::Scalar(true)}});
  CHECK(FirstOf(longer.Get("t")) == Floats{1, 2, 7});
  CHECK(longer.Get("y").ToVector<float>() == Floats{14});
  CHECK(FirstOf(same.Get("t")) == Floats{1, 2});
  const Error wrong = ErrorOf([&] {
    executor.Run({{"s", MakeSequence({Number(1)})}, {"longer", Tensor::Scalar(true)}});
  });
  CHECK(wrong.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(wrong.message(),
                 "is sequence<float32>[?], but the tensor given is sequence<int64>[1]"));
  executor.Bind("s", Tensor());
  CHECK(Contains(ErrorOf([&] { executor.Run(); }).message(),
                 "has no tensor; call Run({{\"s\", MakeSequence({a, b})}}) or Bind"));
}

TEST_CASE("an optional tensor is no optional sequence") {
  TensorInfo info(DType::kOptional, {Dim()});
  info.element = DType::kFloat32;
  Graph graph;
  graph.AddInput({"o", info}).AddOutput("y");
  graph.AddNode(OperatorDef("Identity", {"o"}, {"y"}));
  Executor executor(Compile(graph));
  const Tensor x = Vector({1, 2});
  CHECK(ElementsOf(executor.Run({{"o", MakeOptional(x)}})[0])[0].dim(0) == 2);
  CHECK(executor.Run({{"o", MakeOptional(std::nullopt)}})[0].numel() == 0);
  CHECK(Contains(ErrorOf([&] {
                   executor.Run({{"o", MakeOptional(MakeSequence({x}))}});
                 }).message(),
                 "is optional<float32>[?], but the tensor given is optional<float32[]>[1]"));
}

// Appends the number of the iteration to the sequence `s` of `dtype`, as often as "M" says.
Graph LoopGraph(DType dtype) {
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{}).AddInput("go", DType::kBool, Shape{});
  TensorInfo sequence = detail::SequenceInfo(DType::kInt64);
  sequence.dtype = dtype;
  sequence.holds_sequence = dtype == DType::kOptional;
  body.AddInput({"s", sequence});
  body.AddNode(OperatorDef("Identity", {"go"}, {"next"}));
  body.AddNode(OperatorDef("OptionalGetElement", {"s"}, {"t"}));
  body.AddNode(OperatorDef("SequenceInsert", {"t", "i"}, {"more"}));
  body.AddOutput("next").AddOutput("more");
  Graph graph;
  graph.AddInput("M", DType::kInt64, Shape{}).AddInput({"s", sequence});
  OperatorDef loop("Loop", {"M", "", "s"}, {"out"});
  graph.AddNode(loop.Subgraph("body", MakeSubgraph(body)));
  graph.AddNode(OperatorDef("SequenceLength", {"out"}, {"size"}));
  graph.AddOutput("out").AddOutput("size");
  return graph;
}

TEST_CASE("a loop makes a sequence grow, also one that is an optional value before the loop") {
  const Tensor given = MakeSequence({Number(7)});
  for (const DType dtype : {DType::kSequence, DType::kOptional}) {
    CAPTURE(ToString(dtype));
    Executor executor(Compile(LoopGraph(dtype)));
    const Tensor begin = dtype == DType::kOptional ? MakeOptional(given) : given;
    for (const int64_t trips : {3, 0, 2}) {
      const NamedTensors out = executor.Run({{"M", Number(trips)}, {"s", begin}});
      REQUIRE(out.Get("size").data<int64_t>()[0] == 1 + trips);
      const auto elements = ElementsOf(out.Get("out"));
      REQUIRE(elements.size() == static_cast<size_t>(1 + trips));
      CHECK(elements[0].data<int64_t>()[0] == 7);
      for (int64_t i = 0; i < trips; ++i)
        CHECK(elements[static_cast<size_t>(1 + i)].data<int64_t>()[0] == i);
    }
    CHECK(ElementsOf(given).size() == 1);
  }
  Executor executor(Compile(LoopGraph(DType::kOptional)));
  CHECK(Contains(ErrorOf([&] {
                   executor.Run({{"M", Number(0)}, {"s", MakeOptional({})}});
                 }).what(),
                 "no iteration ran, and carried value 0 is an absent optional value"));
}

}  // namespace
}  // namespace sequence_operators_test
