// Einsum.
#include "opkit/ops/math/einsum.hpp"

#include "../data_movement.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace einsum_test {
using namespace opkit_tests;

namespace {

Tensor Einsum(const std::string& equation, const std::vector<Tensor>& inputs) {
  return Invoke("Einsum", inputs, {{"equation", equation}})[0];
}

TEST_CASE("products are summed over the letters that the output lacks") {
  const Tensor a = Counting({2, 3}), b = Counting({3, 2});
  CHECK(FloatsOf(Einsum("ij,jk->ik", {a, b})) == Floats{10, 13, 28, 40});
  CHECK(FloatsOf(Einsum(" ij , jk ", {a, b})) == Floats{10, 13, 28, 40});
  CHECK(FloatsOf(Einsum("ij->ji", {a})) == Floats{0, 3, 1, 4, 2, 5});
  CHECK(FloatsOf(Einsum("ba", {a})) == Floats{0, 3, 1, 4, 2, 5});
  CHECK(FloatsOf(Einsum("ij->i", {a})) == Floats{3, 12});
  CHECK(FloatsOf(Einsum("ij,ij->", {a, a})) == Floats{55});
  CHECK(FloatsOf(Einsum("i,j->ij", {Vector({1, 2}), Vector({3, 4})})) == Floats{3, 4, 6, 8});
  CHECK(FloatsOf(Einsum("i,i,i->i", {Vector({1, 2}), Vector({3, 4}), Vector({5, 6})})) ==
        Floats{15, 48});
  CHECK(FloatsOf(Einsum("->", {Tensor::Scalar(3.f)})) == Floats{3});
}

TEST_CASE("a letter twice is the diagonal, and ellipses are broadcast") {
  CHECK(FloatsOf(Einsum("ii->i", {Counting({3, 3})})) == Floats{0, 4, 8});
  CHECK(FloatsOf(Einsum("ii", {Counting({3, 3})})) == Floats{12});
  CHECK(FloatsOf(Einsum("...ii->...i", {Counting({2, 2, 2})})) == Floats{0, 3, 4, 7});
  const Tensor y = Einsum("...ij,...jk->...ik", {Counting({2, 1, 1, 2}), Counting({3, 2, 1})});
  CHECK(y.shape() == Shape{2, 3, 1, 1});
  CHECK(FloatsOf(y) == Floats{1, 3, 5, 3, 13, 23});
  CHECK(Einsum("ij,jk->ik", {Counting({2, 0}), Counting({0, 2})}).ToVector<float>() ==
        Floats{0, 0, 0, 0});
}

TEST_CASE("integers wrap around") {
  const Tensor x = Vector<int8_t>({100, 2});
  CHECK(Einsum("i,i->i", {x, x}).ToVector<int8_t>() == std::vector<int8_t>{16, 4});
}

TEST_CASE("shapes are inferred, and wrong equations are refused") {
  CHECK(Inferred("Einsum", {{Sym("N"), 3}, {3, Sym("M")}}, {{"equation", "ij,jk->ki"}}) ==
        "float32[M, N]");
  const auto refused = [](const char* equation, const std::vector<Known>& inputs) {
    return Refused("Einsum", inputs, {{"equation", equation}});
  };
  CHECK(Contains(refused("ij,jk", {{2, 3}}), "has 2 terms, and the node has 1 inputs"));
  CHECK(Contains(refused("i+j", {{2}}), "has an unexpected '+' at index 1"));
  CHECK(Contains(refused("i->ij", {{2}}), "has 'j' only in its output"));
  CHECK(Contains(refused("ij->ii", {{2, 2}}), "has 'i' twice in its output"));
  CHECK(Contains(refused("ij->i", {{2}}), "its term 'ij' has 2 letters"));
  CHECK(Contains(refused("ij,jk->ik", {{2, 3}, {4, 2}}), "has another extent than 3"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("Einsum", {"a", "b"}, {"y"}, {{"equation", "bij,bjk->bik"}}),
            {Counting({2, 2, 3}), Counting({2, 3, 1})});
  CHECK(HasGradient("Einsum"));
}

TEST_CASE("a term that no Einsum gives the gradient of is refused") {
  GradientNames names;
  for (const char* equation : {"...i,i->...", "ii,i->i", "ij,i->i"}) {
    const OperatorDef def("Einsum", {"a", "b"}, {"y"}, {{"equation", equation}});
    CHECK(Contains(ErrorOf([&] { GetGradientForOp(def, {{"dy"}}, names); }).message(),
                   "Einsum has no gradient for the term"));
  }
}

}  // namespace
}  // namespace einsum_test
