// DynamicQuantizeLSTM of com.microsoft. The expected numbers are those of ONNX Runtime.
#include "opkit/ops/quantized/dynamic_quantize_lstm.hpp"

#include "opkit/graph.hpp"
#include "ops/data_movement.hpp"

namespace dynamic_quantize_lstm_test {
using namespace opkit_tests;

namespace {

constexpr const char* kOp = "com.microsoft.DynamicQuantizeLSTM";

// The numbers (i * 7 + 3) % modulo, less `minus`, times `factor`.
Tensor Pattern(const Shape& shape, int64_t modulo, float minus, float factor) {
  Tensor out(shape, DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] = (static_cast<float>((i * 7 + 3) % modulo) - minus) * factor;
  return out;
}
// The numbers (i * 7 + 3) % modulo * 9 - minus.
Tensor Bytes(const Shape& shape, int64_t modulo, int64_t minus) {
  Tensor out(shape, DType::kInt8);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<int8_t>()[i] = static_cast<int8_t>((i * 7 + 3) % modulo * 9 - minus);
  return out;
}
struct Sizes {
  int64_t directions, steps, batch, input, hidden;
};
std::vector<Tensor> Inputs(const Sizes& s, bool by_column) {
  const int64_t columns = 4 * s.hidden;
  const Shape scale = by_column ? Shape{s.directions, columns} : Shape{s.directions};
  return {Pattern({s.steps, s.batch, s.input}, 11, 5, 0.25f),
          Bytes({s.directions, s.input, columns}, 11, 40),
          Bytes({s.directions, s.hidden, columns}, 13, 50),
          Pattern({s.directions, 2 * columns}, 5, 2, 0.125f),
          Tensor(),
          Pattern({s.directions, s.batch, s.hidden}, 3, 1, 0.5f),
          Pattern({s.directions, s.batch, s.hidden}, 7, 3, 0.25f),
          Tensor(),
          Pattern(scale, 3, -1, 0.01f),
          Bytes(scale, 1, 0),
          Pattern(scale, 4, -1, 0.005f),
          Bytes(scale, 1, 0)};
}
void CheckNear(const Tensor& found, const Floats& expected) {
  const Floats numbers = FloatsOf(found);
  REQUIRE(numbers.size() == expected.size());
  for (size_t i = 0; i < numbers.size(); ++i) CHECK(std::abs(numbers[i] - expected[i]) < 2e-5f);
}
std::vector<Tensor> Run(const std::vector<Tensor>& inputs, Arguments args) {
  return Invoke(kOp, inputs, std::move(args), {.num_outputs = 3});
}

TEST_CASE("X and the states are quantised as ONNX Runtime does") {
  std::vector<Tensor> inputs = Inputs({1, 2, 1, 2, 2}, false);
  const auto found = Run(inputs, {});
  CheckNear(found[0], {-0.18991f, 0.04909f, -0.14537f, 0.04658f});
  CheckNear(found[1], {-0.14537f, 0.04658f});
  CheckNear(found[2], {-0.2899f, 0.10243f});
  // Zero points shift the weights and their bytes alike.
  for (const size_t i : {1, 2}) {
    Tensor& weights = inputs[i];
    for (int64_t k = 0; k < weights.numel(); ++k)
      weights.mutable_data<int8_t>()[k] = static_cast<int8_t>(weights.data<int8_t>()[k] + 7);
    inputs[i == 1 ? 9 : 11] = Vector<int8_t>({7});
  }
  CheckNear(Run(inputs, {})[0], FloatsOf(found[0]));
}

TEST_CASE("both directions, lengths and scales by column") {
  std::vector<Tensor> inputs = Inputs({2, 3, 2, 2, 1}, true);
  for (const size_t i : {9, 11}) inputs[i] = Tensor();
  inputs[4] = Vector<int32_t>({3, 2});
  inputs.pop_back();
  const auto found = Run(inputs, {{"direction", "bidirectional"}});
  CheckNear(found[0], {0.11469f, -0.00951f, 0.36475f, 0.01616f, 0.16648f, 0.09047f, -0.0698f,
                       0.37322f, 0.05668f, 0, -0.12686f, 0});
  CheckNear(found[1], {0.05668f, 0.09047f, 0.36475f, 0.01616f});
  CheckNear(found[2], {0.14257f, 0.36616f, 0.51783f, 0.03533f});
  inputs[4] = Vector<int32_t>({3, 0});
  const auto none = Run(inputs, {{"direction", "bidirectional"}});
  CHECK(FloatsOf(none[1])[1] == 0);
  CHECK(FloatsOf(none[2])[3] == 0);
}

TEST_CASE("clip, peepholes, input_forget and named activations") {
  std::vector<Tensor> inputs = Inputs({1, 2, 1, 2, 1}, false);
  inputs[7] = Pattern({1, 3}, 5, 2, 0.25f);
  CheckNear(Run(inputs, {{"direction", "reverse"}, {"clip", 0.5f}, {"input_forget", 1}})[0],
            {0.07699f, -0.08994f});
  inputs[7] = Tensor();
  CheckNear(Run(inputs, {{"activations", std::vector<std::string>{"HardSigmoid", "Relu", "Tanh"}},
                         {"activation_alpha", std::vector<float>{0.3f}},
                         {"activation_beta", std::vector<float>{0.4f}}})[2],
            {0.0697f});
}

TEST_CASE("a plan with constant weights gives the same in every run") {
  const std::vector<Tensor> inputs = Inputs({1, 2, 1, 2, 2}, false);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, inputs[0].shape());
  std::vector<std::string> names{"x"};
  for (size_t i = 1; i < 11; ++i) {
    const bool given = i != 4 && i != 7 && i != 9;
    names.push_back(given ? StrCat("c", i) : "");
    if (given) graph.AddConstant(names.back(), inputs[i]);
  }
  graph.AddNode(OperatorDef(kOp, names, {"y"}));
  graph.AddOutput("y");
  Executor executor(Compile(graph));
  for (int i = 0; i < 2; ++i)
    CheckNear(executor.Run({{"x", inputs[0]}})[0], {-0.18991f, 0.04909f, -0.14537f, 0.04658f});
}

TEST_CASE("the exponential is near e^x everywhere") {
  for (float x = -86; x < 86; x += 0.37f)
    CHECK(std::abs(detail::QuickExp(x) / std::exp(x) - 1) < 4e-7f);
  CHECK(detail::QuickExp(-1000) < 1e-37f);
  CHECK(detail::QuickExp(1000) > 1e37f);
}

TEST_CASE("what does not fit is refused") {
  std::vector<Tensor> inputs = Inputs({1, 2, 1, 2, 2}, false);
  CHECK(Contains(ErrorOf([&] { Run(inputs, {{"layout", 1}}); }).what(), "layout is 1"));
  CHECK(Contains(ErrorOf([&] { Run(inputs, {{"hidden_size", 3}}); }).what(), "hidden_size is 3"));
  inputs[8] = Vector({1, 2, 3});
  CHECK_THROWS_AS(Run(inputs, {}), Error);
  inputs[8] = Tensor({1, 1, 1}, DType::kFloat32);
  CHECK(Contains(ErrorOf([&] { Run(inputs, {}); }).what(),
                 "expected one element for each direction"));
}

}  // namespace
}  // namespace dynamic_quantize_lstm_test
