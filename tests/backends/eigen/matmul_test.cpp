// MatMul and Gemm of the "eigen" backend: the same as the plain operators, on any number of
// threads.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace matmul_test {
using namespace opkit;

namespace {

void Compare(const Shape& a, const Shape& b) {
  CheckSameOn("eigen", "MatMul", {Random(a, 1), Random(b, 2)});
}

TEST_CASE("Matrices, vectors and batches are multiplied as the plain operator does") {
  Compare({40, 120}, {120, 77});
  Compare({1, 300}, {300, 515});
  Compare({300}, {300, 515});
  Compare({515, 300}, {300});
  Compare({300}, {300});
  Compare({3, 5}, {5, 4});
  Compare({7, 9, 33}, {33, 20});         // one product
  Compare({8, 40, 15}, {8, 15, 40});     // one for each
  Compare({2, 1, 9, 8}, {3, 8, 5});      // broadcast on both sides
  Compare({9, 8}, {4, 8, 5});            // the left one repeats
  Compare({2, 3, 9, 8}, {3, 8, 5});      // the right ones repeat
  Compare({2, 200, 150}, {2, 150, 90});  // few, large
  Compare({64, 17}, {64, 17, 1});
}

TEST_CASE("An extent of 0 gives zeros or an empty product") {
  Compare({2, 0}, {0, 3});
  Compare({0, 4}, {4, 3});
  Compare({3, 0, 4}, {4, 3});
  Compare({3, 2, 0}, {3, 0, 2});
}

TEST_CASE("Random sizes and batches are multiplied as the plain operator does") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 engine(seed);
    auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(engine() % static_cast<uint64_t>(most - least + 1));
    };
    std::vector<int64_t> a, b;
    for (int64_t axis = draw(0, 2); axis > 0; --axis) {
      const int64_t extent = draw(1, 4);
      a.push_back(draw(0, 2) ? extent : 1);
      if (!b.empty() || draw(0, 1)) b.push_back(draw(0, 2) ? extent : 1);
    }
    const int64_t k = draw(1, 150);
    a.insert(a.end(), {draw(1, 90), k});
    b.insert(b.end(), {k, draw(1, 90)});
    INFO("seed ", seed);
    Compare(Shape(a), Shape(b));
  }
}

TEST_CASE("The gradients of both factors are those of the plain operator") {
  const Shape triples[][3] = {{{9, 8}, {9, 12}, {12, 8}},
                              {{2, 9, 8}, {2, 9, 12}, {12, 8}},
                              {{2, 9, 8}, {2, 9, 12}, {2, 12, 8}},
                              {{2, 9, 8}, {9, 12}, {2, 12, 8}},
                              {{2, 3, 9, 8}, {2, 1, 9, 12}, {3, 12, 8}},
                              {{8}, {12}, {12, 8}},
                              {{9}, {9, 12}, {12}},
                              {{}, {12}, {12}},
                              {{9, 8}, {9, 0}, {0, 8}},
                              {{0, 8}, {0, 12}, {12, 8}}};
  for (const auto& [y, a, b] : triples)
    for (const int of : {0, 1})
      CheckSameOn("eigen", "MatMulGradient", {Random(y, 1), Random(a, 2), Random(b, 3)},
                  {{"of", of}});
}

TEST_CASE("Gemm with every form of C, scaled and transposed") {
  const std::vector<Shape> forms = {{9, 21}, {21}, {1, 21}, {9, 1}, {1}, {}, {1, 1}};
  for (int transposed = 0; transposed < 4; ++transposed)
    for (const Shape& form : forms) {
      const int ta = transposed & 1, tb = transposed >> 1;
      const Tensor a = Random(ta ? Shape{33, 9} : Shape{9, 33}, 1);
      const Tensor b = Random(tb ? Shape{21, 33} : Shape{33, 21}, 2);
      for (const float beta : {1.f, 0.5f, 0.f})
        CheckSameOn("eigen", "Gemm", {a, b, Random(form, 3)},
                    {{"transA", ta}, {"transB", tb}, {"alpha", 0.75f}, {"beta", beta}});
    }
  CheckSameOn("eigen", "Gemm", {Random({1, 500}, 1), Random({700, 500}, 2), Random({700}, 3)},
              {{"transB", 1}});
  CheckSameOn("eigen", "Gemm", {Random({4, 5}, 1), Random({5, 6}, 2)}, {{"alpha", 2.f}});
  CheckSameOn("eigen", "Gemm", {Random({4, 0}, 1), Random({0, 6}, 2), Random({6}, 3)},
              {{"beta", 2.f}});
}

TEST_CASE("C is not read where beta is 0") {
  const Tensor c = Filled({2}, std::numeric_limits<float>::quiet_NaN()), one = Filled({2, 2}, 1);
  CHECK(
      Invoke("Gemm", {one, one, c}, {{"beta", 0.f}}, {.backends = "eigen"})[0].ToVector<float>() ==
      std::vector<float>(4, 2.f));
}

TEST_CASE("float64 is computed, other types go to the plain operator") {
  const Tensor a = Random({5, 70}, 1, DType::kFloat64), b = Random({70, 9}, 2, DType::kFloat64);
  const auto fast = Invoke("MatMul", {a, b}, {}, {.backends = "eigen"})[0].ToVector<double>();
  const auto plain = Invoke("MatMul", {a, b}, {}, {.backends = "reference"})[0].ToVector<double>();
  for (size_t i = 0; i < fast.size(); ++i)
    CHECK(fast[i] == doctest::Approx(plain[i]).epsilon(1e-13));
  const Tensor ints = Tensor::From<int32_t>({1, 1}, {3});
  CHECK(Invoke("MatMul", {ints, ints})[0].ToVector<int32_t>()[0] == 9);
  const OperatorDef def("MatMul", {"a", "b"}, {"c"});
  const std::vector<TensorInfo> in(2, {DType::kInt32, Shape{1, 1}}), out = {in[0]};
  CHECK(Contains(ErrorOf([&] {
                   ProposeOf("eigen", {def, in, out});
                 }).message(),
                 "computes float32 and float64, and input 0 is int32"));
}

TEST_CASE("MatMul and Gemm keep the promises of their schemas on every backend") {
  CheckNode(OperatorDef("MatMul", {"a", "b"}, {"c"}), {Random({2, 3, 5}, 1), Random({5, 4}, 2)});
  CheckNode(OperatorDef("Gemm", {"a", "b", "bias"}, {"c"}, {{"transA", 1}}),
            {Random({5, 3}, 3), Random({5, 4}, 2), Random({4}, 4)});
}

}  // namespace
}  // namespace matmul_test
