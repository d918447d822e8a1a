// DynamicQuantizeLinear: the scale covers all numbers and 0.
#include "opkit/ops/quantized/dynamic_quantize_linear.hpp"

#include "ops/data_movement.hpp"

namespace dynamic_quantize_linear_test {
using namespace opkit_tests;

namespace {

std::vector<uint8_t> Check(const Tensor& x, float scale, int zero_point) {
  const std::vector<Tensor> out = Invoke("DynamicQuantizeLinear", {x});
  CHECK(out[1].ToVector<float>() == Floats{scale});
  CHECK(static_cast<int>(out[2].ToVector<uint8_t>()[0]) == zero_point);
  CHECK(out[0].shape() == x.shape());
  return out[0].ToVector<uint8_t>();
}

TEST_CASE("the scale covers the numbers and 0") {
  using Bytes = std::vector<uint8_t>;
  CHECK(Check(Vector({0, 2, -3, -2.5f, 1.34f, 0.5f}), 5.f / 255, 153) ==
        Bytes{153, 255, 0, 26, 221, 179});
  CHECK(Check(Vector({1, 255}), 1, 0) == Bytes{1, 255});
  CHECK(Check(Vector({-510, -1}), 2, 255) == Bytes{0, 255});
  CHECK(Check(Vector({0, 0}), 1, 0) == Bytes{0, 0});
  CHECK(Check(Tensor({2, 0}, DType::kFloat32), 1, 0).empty());
}

TEST_CASE("every element counts, in each part of a long tensor") {
  for (const int64_t at : {0, 17, 65535, 65536, 200000, 200002}) {
    Tensor x({200003}, DType::kFloat32);
    for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] = 0;
    x.mutable_data<float>()[at] = -255;
    const auto y = Check(x, 1, 255);
    CHECK(y[static_cast<size_t>(at)] == 0);
    CHECK(y[5] == 255);
  }
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("DynamicQuantizeLinear", {"x"}, {"y", "s", "z"}), {Random({3, 5}, 7)});
  CHECK(Inferred("DynamicQuantizeLinear", {{Sym("N")}}, {}, 3) == "uint8[N] float32[] uint8[]");
  CHECK(Contains(Refused("DynamicQuantizeLinear", {{DType::kFloat16, {2}}}, {}, 3), "float16"));
}

}  // namespace
}  // namespace dynamic_quantize_linear_test
