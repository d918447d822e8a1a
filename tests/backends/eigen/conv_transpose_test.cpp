// ConvTranspose of the "eigen" backend: the same as the plain operator.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace conv_transpose_test {
using namespace opkit;

namespace {

void Compare(const Shape& x, const Shape& w, int64_t groups = 1, Arguments args = {},
             bool bias = true) {
  std::vector<Tensor> inputs = {Random(x, 1), Random(w, 2)};
  if (bias) inputs.push_back(Random({w[1] * groups}, 3));
  args.Set("group", groups);
  CheckSameOn("eigen", "ConvTranspose", inputs, args);
}

TEST_CASE("Layers that models use give what the plain operator gives") {
  Compare({1, 24, 40, 60}, {24, 24, 2, 2}, 1, {{"strides", Ints{2, 2}}});
  Compare({1, 24, 30, 40}, {24, 1, 2, 2}, 1, {{"strides", Ints{2, 2}}});
  Compare({2, 12, 9, 10}, {12, 5, 4, 4}, 1, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  Compare({1, 8, 300}, {8, 8, 16}, 1, {{"strides", Ints{8}}, {"pads", Ints{4, 4}}});
  Compare({1, 6, 20, 20}, {6, 1, 3, 3}, 6, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2, 2}}});
  Compare({1, 4, 7, 7}, {4, 3, 3, 3}, 2, {{"output_shape", Ints{20, 17}}, {"strides", Ints{3, 2}}});
  Compare({1, 4, 700, 90}, {4, 2, 5, 5});
}

TEST_CASE("Random layers give what the plain operator gives") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 engine(seed);
    auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(engine() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t spatial = draw(1, 3), groups = draw(0, 2) ? 1 : draw(1, 4);
    Ints x = {draw(1, 2), groups * draw(1, 12)}, w = {x[1], draw(1, 12)};
    Ints strides, dilations, padding, begin, end;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      x.push_back(draw(1, axis + 1 < spatial ? 8 : 30));
      w.push_back(draw(1, 4));
      dilations.push_back(draw(1, 3));
      strides.push_back(draw(1, 3));
      padding.push_back(draw(0, strides.back() - 1));
      const int64_t full = (x.back() - 1) * strides.back() + (w.back() - 1) * dilations.back() + 1;
      begin.push_back(draw(0, (full - 1) / 2));
      end.push_back(draw(0, (full - 1) / 2));
    }
    begin.insert(begin.end(), end.begin(), end.end());
    INFO("seed ", seed);
    Compare(Shape(x), Shape(w), groups,
            {{"strides", strides},
             {"dilations", dilations},
             {"output_padding", padding},
             {"pads", begin}},
            draw(0, 1) == 1);
  }
}

TEST_CASE("Without images there is no output, without channels only the bias") {
  Compare({0, 3, 5, 5}, {3, 4, 3, 3});
  Compare({2, 0, 5, 5}, {0, 4, 3, 3});
}

TEST_CASE("ConvTranspose asks for the memory of one block, and refuses other types") {
  const OperatorDef def("ConvTranspose", {"x", "w"}, {"y"}, {{"strides", Ints{2, 2}}});
  auto propose = [&](DType dtype) {
    const std::vector<TensorInfo> inputs = {{dtype, Shape{1, 8, 500, 500}},
                                            {dtype, Shape{8, 8, 2, 2}}};
    const std::vector<TensorInfo> outputs = {{dtype, Shape{1, 8, 1000, 1000}}};
    return ProposeOf("eigen", {def, inputs, outputs})[0].scratch_bytes;
  };
  CHECK(propose(DType::kFloat32) > 0);
  CHECK(propose(DType::kFloat32) <= int64_t{256} * 1024 * ThreadPool::Current().threads());
  CHECK(Contains(ErrorOf([&] { propose(DType::kFloat64); }).message(), "input 0 is float64"));
}

TEST_CASE("ConvTranspose keeps the promises of its schema on every kernel") {
  const OperatorDef def("ConvTranspose", {"x", "w", "b"}, {"y"},
                        {{"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 1}}});
  CheckOptions options;
  options.compare.bitwise_threads = true;
  options.compare.gradient = false;  // ops_test checks it, on smaller images
  CheckNode(def, {Random({2, 20, 31, 33}, 1), Random({20, 24, 3, 2}, 2), Random({24}, 3)}, options);
}

}  // namespace
}  // namespace conv_transpose_test
