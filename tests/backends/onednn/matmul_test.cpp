// MatMul and Gemm of the "onednn" backend: the same as the plain operators, with matrices that the
// plan packs.
#include "backends/onednn/images.hpp"

namespace matmul_test { namespace {

using namespace opkit;
using namespace onednn_test;

TEST_CASE("Products by constant matrices") {
  CheckConstants("MatMul", {Random({40, 70}, 1), Random({70, 90}, 2)});
  CheckConstants("MatMul", {Random({2, 3, 25, 64}, 1), Random({64, 130}, 2)});
  CheckConstants("MatMul", {Random({200, 257}, 1), Random({257, 64}, 2)});
  const Tensor c = Random(Shape{96}, 3), row = Random({1, 96}, 3);
  for (const int64_t transposed : {0, 1}) {
    const Tensor b = transposed ? Random({96, 64}, 2) : Random({64, 96}, 2);
    CheckConstants("Gemm", {Random({33, 64}, 1), b}, {{"transB", transposed}});
    CheckConstants("Gemm", {Random({33, 64}, 1), b, c}, {{"transB", transposed}});
    CheckConstants("Gemm", {Random({33, 64}, 1), b, row}, {{"transB", transposed}});
  }
}

TEST_CASE("Shapes without a gain are left to other backends, with the reason") {
  const auto refused = [](const std::string& op, const std::vector<Tensor>& inputs,
                          const Arguments& args = {}) {
    const NodeChoice choice = Compile(GraphOf(op, inputs, args)).choice(0);
    CHECK(choice.kernel->backend != "onednn");
    return choice.passed_over;
  };
  const Tensor w = Random({256, 256}, 2);
  CHECK(refused("MatMul", {Random({1, 256}, 1), w}).find("a product of 1 rows") !=
        std::string::npos);
  CHECK(refused("MatMul", {Random({5, 6}, 1), Random({6, 7}, 2)}).find("too small") !=
        std::string::npos);
  CHECK(refused("MatMul", {Random({2, 64, 256}, 1), Random({2, 256, 64}, 2)}).find("one matrix") !=
        std::string::npos);
  CHECK(refused("Gemm", {Random({256, 64}, 1), w}, {{"transA", 1}}).find("transposed A") !=
        std::string::npos);
  CHECK(refused("Gemm", {Random({64, 256}, 1), w}, {{"alpha", 0.5f}}).find("alpha") !=
        std::string::npos);
  CHECK(refused("Gemm", {Random({64, 256}, 1), w, Random({64, 256}, 3)}).find("adds a row") !=
        std::string::npos);
  CHECK_FALSE(IsTakenBy("onednn", "MatMul", {Random({64, 256}, 1), w}, {}, 1));
}

}  // namespace
}  // namespace matmul_test
