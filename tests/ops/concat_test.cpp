// Concat and Split.
#include "opkit/ops/concat.hpp"

#include "data_movement.hpp"
#include "opkit/ops/shape_of.hpp"

namespace concat_test {
using namespace opkit_tests;

namespace {

std::vector<Tensor> Split(const std::vector<Tensor>& inputs, Arguments args, int parts) {
  InvokeOptions options;
  options.num_outputs = parts;
  return Invoke("Split", inputs, std::move(args), options);
}

TEST_CASE("Concat joins along any axis") {
  const Tensor a = Counting({2, 1}), b = Counting({2, 2});
  const Tensor y = Invoke("Concat", {a, b}, {{"axis", 1}})[0];
  CHECK(y.shape() == Shape{2, 3});
  CHECK(FloatsOf(y) == Floats{0, 0, 1, 1, 2, 3});
  CHECK(FloatsOf(Invoke("Concat", {b, b}, {{"axis", -2}})[0]) == Floats{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(FloatsOf(Invoke("Concat", {b}, {{"axis", 0}})[0]) == FloatsOf(b));
  CHECK(FloatsOf(Invoke("Concat", {Counting({2, 0}), b, Counting({2, 0})}, {{"axis", 1}})[0]) ==
        FloatsOf(b));
  CHECK(Invoke("Concat", {Counting({0, 2}), Counting({0, 3})}, {{"axis", 1}})[0].shape() ==
        Shape{0, 5});
  CHECK(FloatsOf(Invoke("Concat", {b.Permute({1, 0}), a}, {{"axis", 1}})[0]) ==
        Floats{0, 2, 0, 1, 3, 1});
}

TEST_CASE("Concat infers the sum where all is known") {
  CHECK(Inferred("Concat", {{Sym("N"), 2}, {Dim(), 3}}, {{"axis", 1}}) == "float32[N, 5]");
  CHECK(Inferred("Concat", {{Sym("N"), 2}, {4, Dim()}}, {{"axis", 1}}) == "float32[4, ?]");
  CHECK(Inferred("Concat", {{Sym("N"), 2}}, {{"axis", 0}}) == "float32[N, 2]");
  CHECK(Inferred("Concat", {kNoRank, {2, 3}}, {{"axis", 0}}) == "float32[?, 3]");
  CHECK(Inferred("Concat", {{Dim::AtMost(5), 3}, {2, 3}}, {{"axis", 0}}) == "float32[<=7, 3]");
  CHECK(Refused("Concat", {{2, 3}, {3, 3}}, {{"axis", 1}}) ==
        "Concat: input 1 has shape [3, 3], expected the extents of the inputs before it, [2, 3], "
        "except along axis 1");
  CHECK(Contains(Refused("Concat", {{2, 3}, {2}}, {{"axis", 1}}), "expected the rank"));
  CHECK(Contains(Refused("Concat", {{2}, {DType::kInt8, {2}}}, {{"axis", 0}}),
                 "is int8[2], expected dtype float32"));
  CHECK(Contains(Refused("Concat", {{2}, {2}}, {{"axis", 1}}), "axis 1 is outside"));
  CHECK(Contains(Inferred("Concat", {{2}, {2}}), "needs the argument 'axis'"));
  const int64_t huge = int64_t{1} << 62;
  CHECK(Contains(Refused("Concat", {{huge}, {huge}}, {{"axis", 0}}), "64-bit count"));
}

TEST_CASE("Split cuts into equal parts, or into the given ones") {
  const Tensor x = Counting({2, 6});
  const auto halves = Split({x}, {{"axis", 1}}, 2);
  CHECK(FloatsOf(halves[0]) == Floats{0, 1, 2, 6, 7, 8});
  CHECK(FloatsOf(halves[1]) == Floats{3, 4, 5, 9, 10, 11});
  const auto told = Split({x, List({1, 0, 5})}, {{"axis", -1}}, 3);
  CHECK(FloatsOf(told[0]) == Floats{0, 6});
  CHECK(told[1].shape() == Shape{2, 0});
  CHECK(FloatsOf(told[2]) == Floats{1, 2, 3, 4, 5, 7, 8, 9, 10, 11});
  const auto uneven = Split({Counting({7})}, {{"num_outputs", 3}}, 3);
  CHECK(FloatsOf(uneven[2]) == Floats{6});
  CHECK(FloatsOf(Split({x.Permute({1, 0})}, {}, 3)[1]) == Floats{2, 8, 3, 9});
}

TEST_CASE("an output of Split may be left out") {
  Workspace ws;
  *ws.CreateTensor("x") = Counting({4});
  CreateOperator(OperatorDef("Split", {"x"}, {"", "b"}), &ws)->Run();
  CHECK(FloatsOf(*ws.GetTensor("b")) == Floats{2, 3});
}

TEST_CASE("Split infers parts of a known extent") {
  CHECK(Inferred("Split", {{6, Sym("N")}}, {}, 3) == "float32[2, N] float32[2, N] float32[2, N]");
  CHECK(Inferred("Split", {{Sym("N"), 5}}, {{"axis", 1}, {"num_outputs", 2}}, 2) ==
        "float32[N, 3] float32[N, 2]");
  CHECK(Inferred("Split", {{Sym("N")}, List({1, 2})}, {}, 2) == "float32[1] float32[2]");
  CHECK(Inferred("Split", {{Sym("N")}}, {}, 2) == "float32[?] float32[?]");
  CHECK(Inferred("Split", {{Sym("N")}}, {}, 1) == "float32[N]");
  CHECK(Inferred("Split", {{4}, {DType::kInt64, {2}}}, {}, 2) == "float32[<=4] float32[<=4]");
  CHECK(Inferred("Split", {{Dim::AtMost(7)}}, {}, 2) == "float32[<=4] float32[<=4]");
  CHECK(Inferred("Split", {kNoRank, List({1, 2})}, {}, 2) ==
        "float32[rank unknown] float32[rank unknown]");
  CHECK(
      Refused("Split", {{5}}, {}, 2) ==
      "Split: the axis of 'input0' has the extent 5, no multiple of the 2 equal parts; other parts "
      "need the input 'split'");
  CHECK(Contains(Refused("Split", {{1}}, {}, 3), "the extent 1, no multiple of the 3 equal parts"));
  CHECK(Contains(Refused("Split", {{5}}, {{"num_outputs", 4}}, 4), "cannot be cut into 4 parts"));
  CHECK(Refused("Split", {{5}, List({2, 2})}, {}, 2) ==
        "Split: 'split' [2, 2] adds up to 4, but the axis has extent 5");
  CHECK(Contains(Refused("Split", {{5}, List({5})}, {}, 2), "gives 1 extents, [5], but the node"));
  CHECK(Contains(Refused("Split", {{5}, List({6, -1})}, {}, 2), "expected extents of at least 0"));
  CHECK(Contains(Refused("Split", {{5}}, {{"num_outputs", 3}}, 2), "num_outputs is 3"));
  CHECK(Contains(Refused("Split", {{4}, List({2, 2})}, {{"num_outputs", 2}}, 2), "found both"));
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  CheckNode(OperatorDef("Concat", {"a", "b"}, {"y"}, {{"axis", 1}}),
            {Counting({2, 1, 2}), Counting({2, 3, 2})});
  CheckNode(OperatorDef("Concat", {"a", "b"}, {"y"}, {{"axis", -1}}),
            {Counting({2, 1}), Counting({2, 3})});
  CheckNode(OperatorDef("Split", {"x", "split"}, {"a", "b"}, {{"axis", 1}}),
            {Counting({2, 5}), List({2, 3})});
  CHECK(HasGradient("Concat"));
}

TEST_CASE("an output of Split that nothing depends on gives zeros back") {
  const GradientOpsMeta meta = GetGradientForOp(OperatorDef("Split", {"x", "split"}, {"a", "b"}),
                                                {GradientValue("da"), GradientValue()});
  Workspace ws;
  *ws.CreateTensor("da") = Tensor::From<float>({2}, {7, 8});
  *ws.CreateTensor("b") = Tensor::From<float>({1}, {std::numeric_limits<float>::infinity()});
  for (const OperatorDef& def : meta.ops) CreateOperator(def, &ws)->Run();
  CHECK(FloatsOf(*ws.GetTensor(meta.g_input[0].dense)) == Floats{7, 8, 0});
  const std::string text = ErrorOf([] {
                             GetGradientForOp(OperatorDef("Split", {"x"}, {"a", ""}),
                                              {GradientValue("da"), GradientValue()});
                           }).what();
  CHECK(Contains(text, "needs all of its outputs, and output 1 is left out"));
}

}  // namespace
}  // namespace concat_test
