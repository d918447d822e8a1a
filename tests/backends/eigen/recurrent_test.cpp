// LSTM, GRU and RNN of the "eigen" backend: the same as the plain operators, whatever they are
// given.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace recurrent_test {
using namespace opkit;

namespace {

using Names = std::vector<std::string>;
using Floats = std::vector<float>;

Tensor Small(const Shape& shape, uint64_t seed) {
  Tensor out = Random(shape, seed);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] *= 0.25f;  // so that an error does not grow from step to step
  return out;
}

// A layer with every optional input that `parts` names: b, l (lengths), h, c, p.
struct Layer {
  const char* op;
  int64_t gates, functions, outputs;
};
constexpr Layer kLayers[] = {{"LSTM", 4, 3, 3}, {"GRU", 3, 2, 2}, {"RNN", 1, 1, 2}};

void Compare(const Layer& layer, int64_t steps, int64_t batch, int64_t input, int64_t hidden,
             std::string_view parts, Arguments args) {
  const bool batch_first = args.Get<int64_t>("layout", 0) != 0;
  const int64_t d = args.Get<std::string>("direction", "") == "bidirectional" ? 2 : 1;
  const int64_t width = layer.gates * hidden;
  auto has = [&](char part) { return parts.find(part) != parts.npos; };
  const Shape state = batch_first ? Shape{batch, d, hidden} : Shape{d, batch, hidden};
  std::vector<Tensor> inputs = {
      Small(batch_first ? Shape{batch, steps, input} : Shape{steps, batch, input}, 1),
      Small({d, width, input}, 2), Small({d, width, hidden}, 3)};
  inputs.push_back(has('b') ? Small({d, 2 * width}, 4) : Tensor());
  Tensor lengths;
  if (has('l')) {
    lengths = Tensor({batch}, DType::kInt32);
    for (int64_t i = 0; i < batch; ++i)
      lengths.mutable_data<int32_t>()[i] = static_cast<int32_t>((7 * i + 3) % (steps + 1));
  }
  inputs.push_back(lengths);
  inputs.push_back(has('h') ? Small(state, 5) : Tensor());
  if (layer.outputs == 3) {
    inputs.push_back(has('c') ? Small(state, 6) : Tensor());
    inputs.push_back(has('p') ? Small({d, 3 * hidden}, 7) : Tensor());
  }
  CheckSameOn("eigen", layer.op, inputs, args, static_cast<int>(layer.outputs));
}

TEST_CASE("Every direction, layout, length and optional input") {
  for (const Layer& layer : kLayers)
    for (const char* direction : {"forward", "reverse", "bidirectional"})
      for (const int layout : {0, 1})
        for (const char* parts : {"", "b", "l", "bh", "blhcp", "hp", "cl"})
          Compare(layer, 5, 3, 4, 7, parts, {{"direction", direction}, {"layout", layout}});
}

TEST_CASE("Variants, bounds and many steps, whose weights are packed") {
  for (const Layer& layer : kLayers) {
    Arguments args = {{"clip", 0.3f}};
    Compare(layer, 6, 2, 5, 9, "bhcp", args);
    Compare(layer, 70, 1, 30, 65, "bhcp", {{"direction", "bidirectional"}});
    Compare(layer, 70, 3, 3, 20, "l", {{"direction", "reverse"}});
    Compare(layer, 50, 40, 9, 33, "bl", {});
  }
  Compare(kLayers[0], 60, 2, 5, 9, "bhcp", {{"input_forget", 1}});
  for (const int64_t steps : {5, 60})
    for (const char* parts : {"", "b", "bl"})
      Compare(kLayers[1], steps, 2, 5, 9, parts,
              {{"linear_before_reset", 1}, {"direction", "bidirectional"}});
}

TEST_CASE("Every activation is computed as the plain operator does") {
  for (const char* name : {"Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu",
                           "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"})
    for (const Layer& layer : kLayers)
      Compare(layer, 3, 2, 5, 21, "bh",
              {{"activations", Names(static_cast<size_t>(layer.functions), name)}});
}

TEST_CASE("No steps, no sequences, and only some outputs") {
  for (const Layer& layer : kLayers) {
    Compare(layer, 0, 2, 3, 4, "h", {});
    Compare(layer, 3, 0, 3, 4, "", {});
    Compare(layer, 3, 2, 0, 4, "b", {});
  }
  Workspace ws;
  *ws.CreateTensor("x") = Random({3, 1, 2}, 1);
  *ws.CreateTensor("w") = Random({1, 8, 2}, 2);
  *ws.CreateTensor("r") = Random({1, 8, 2}, 3);
  const OperatorDef all("LSTM", {"x", "w", "r"}, {"y", "h", "c"});
  CreateOperator(all, &ws)->Run();
  for (const OperatorDef& some : {OperatorDef("LSTM", {"x", "w", "r"}, {"", "h2", ""}),
                                  OperatorDef("LSTM", {"x", "w", "r"}, {"", "", "c2"}),
                                  OperatorDef("LSTM", {"x", "w", "r"}, {"y2"})}) {
    OperatorDef def = some;
    CreateOperator(def.Backends("eigen"), &ws)->Run();
  }
  CheckClose(*ws.GetTensor("y2"), *ws.GetTensor("y"));
  CheckClose(*ws.GetTensor("h2"), *ws.GetTensor("h"));
  CheckClose(*ws.GetTensor("c2"), *ws.GetTensor("c"));
}

TEST_CASE("A state is exactly 1 or -1 as soon as its tanh rounds to that") {
  const Floats ends = {9.02f, 10, 100, -9.02f, -10, -100, 9.02f, 10, 100, -9.02f, -10};
  Floats expected;
  for (const float end : ends) expected.push_back(end > 0 ? 1 : -1);
  const auto hidden = static_cast<int64_t>(ends.size());  // more than one packet, and a rest
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({1, 1, 1}, {1});
  *ws.CreateTensor("w") = Tensor::From<float>({1, hidden, 1}, ends);
  *ws.CreateTensor("r") =
      Tensor::From<float>({1, hidden, hidden}, Floats(ends.size() * ends.size()));
  OperatorDef def("RNN", {"x", "w", "r"}, {"y"});
  CreateOperator(def.Backends("eigen"), &ws)->Run();
  CHECK(ws.GetTensor("y")->ToVector<float>() == expected);
}

TEST_CASE("The layers keep the promises of their schemas on every backend") {
  for (const Layer& layer : kLayers) {
    OperatorDef def(layer.op, {"x", "w", "r", "b"}, {"y", "yh"}, {{"direction", "bidirectional"}});
    if (layer.outputs == 3) def.Output("yc");
    CheckNode(def, {Small({4, 2, 3}, 1), Small({2, layer.gates * 5, 3}, 2),
                    Small({2, layer.gates * 5, 5}, 3), Small({2, layer.gates * 10}, 4)});
  }
}

}  // namespace
}  // namespace recurrent_test
