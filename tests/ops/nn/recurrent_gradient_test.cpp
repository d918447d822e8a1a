// The gradients of LSTM, GRU and RNN.
#include "opkit/ops/nn/recurrent_gradient.hpp"

#include "ops/data_movement.hpp"

namespace recurrent_gradient_test {
using namespace opkit_tests;

namespace {

using Names = std::vector<std::string>;

// Checks a layer with 2 sequences of 3 and 2 steps, with all inputs, in both directions.
void CheckLayer(const char* op, int64_t gates, Arguments args, bool batch_first = false) {
  CAPTURE(op);
  const auto random = [](Shape shape, uint64_t seed) {
    return RandomTensor(shape, DType::kFloat64, seed);
  };
  OperatorDef def(op, {"x", "w", "r", "b", "l", "h"}, {"y", "yh"}, std::move(args));
  def.Arg("direction", "bidirectional").Arg("layout", batch_first ? 1 : 0);
  std::vector<Tensor> inputs = {random(batch_first ? Shape{2, 3, 1} : Shape{3, 2, 1}, 1),
                                random({2, gates * 2, 1}, 2),
                                random({2, gates * 2, 2}, 3),
                                random({2, gates * 4}, 4),
                                Tensor::From<int32_t>({2}, {3, 2}),
                                random({2, 2, 2}, 5)};
  std::vector<int> of = {0, 1, 2, 3, 5};
  if (gates == 4) {
    def.Input("c").Input("p").Output("yc");
    inputs.push_back(random({2, 2, 2}, 6));
    inputs.push_back(random({2, 6}, 7));
    of.insert(of.end(), {6, 7});
  }
  const auto result = CheckGradient(def, inputs, {.inputs = of});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("gradients through time of every variant") {
  CheckLayer("LSTM", 4, {});
  CheckLayer("LSTM", 4, {{"input_forget", 1}}, true);
  CheckLayer("GRU", 3, {});
  CheckLayer("GRU", 3, {{"linear_before_reset", 1}}, true);
  CheckLayer("RNN", 1, {});
}

TEST_CASE("gradients of every activation, and none of a gate that is clipped") {
  for (const char* name : {"Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu",
                           "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    CAPTURE(name);
    CheckLayer("RNN", 1, {{"activations", Names(2, name)}});
  }
  CheckLayer("RNN", 1, {{"activations", Names(2, "Affine")}, {"clip", 0.9f}});
}

TEST_CASE("gradients of a layer with few inputs, of the last state alone") {
  const OperatorDef def("GRU", {"x", "w", "r"}, {"", "yh"}, {{"direction", "reverse"}});
  GradientNames names;
  const GradientOpsMeta meta = GetGradientForOp(def, {GradientValue(), GradientValue("g")}, names);
  REQUIRE(meta.ops.size() == 1);
  CHECK(meta.ops[0].outputs().size() == 3);
  Workspace ws;
  *ws.CreateTensor("x") = Counting({2, 1, 1});
  *ws.CreateTensor("w") = Tensor(Shape{1, 3, 1}, DType::kFloat32);
  *ws.CreateTensor("r") = Tensor(Shape{1, 3, 1}, DType::kFloat32);
  for (const char* zero : {"w", "r"})
    for (int i = 0; i < 3; ++i) ws.GetTensor(zero)->mutable_data<float>()[i] = 0;
  *ws.CreateTensor("g") = Tensor::From<float>({1, 1, 1}, {4});
  CreateOperator(meta.ops[0], &ws)->Run();
  // All gates are 1 / 2 and the candidate is 0: the last step, with x = 0, adds nothing, and the
  // first, with x = 1, has half of its slope.
  CHECK(FloatsOf(*ws.GetTensor(meta.g_input[1].dense)) == Floats{0, 0, 1});
}

}  // namespace
}  // namespace recurrent_gradient_test
