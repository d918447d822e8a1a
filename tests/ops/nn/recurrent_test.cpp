// LSTM, GRU and RNN: values by hand with linear activations, directions, lengths, layouts, errors.
#include "opkit/ops/nn/recurrent.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace recurrent_test {
using namespace opkit_tests;

namespace {

using Names = std::vector<std::string>;

// Affine without numbers is the identity.
Arguments Linear(int functions) {
  return {{"activations", Names(static_cast<size_t>(functions), "Affine")}};
}
Arguments With(Arguments args, Arguments more) {
  for (const auto& one : more) args.Set(one.name, one.value);
  return args;
}
Tensor T(Shape shape, std::initializer_list<float> values) {
  return Tensor::From<float>(std::move(shape), values);
}

TEST_CASE("One step of an LSTM, by its equations") {
  const Tensor x = T({1, 1, 1}, {1}), w = T({1, 4, 1}, {1, 2, 3, 4}),
               r = T({1, 4, 1}, {0, 0, 0, 0});
  const Tensor h0 = T({1, 1, 1}, {0}), c0 = T({1, 1, 1}, {10}), p = T({1, 3}, {1, 1, 1});
  // i 1, o 2, f 3, c 4: C = 3 * 10 + 1 * 4, H = 2 * C.
  auto out = Invoke("LSTM", {x, w, r, {}, {}, h0, c0}, Linear(3), {.num_outputs = 3});
  CHECK(FloatsOf(out[0]) == Floats{68});
  CHECK(FloatsOf(out[1]) == Floats{68});
  CHECK(FloatsOf(out[2]) == Floats{34});
  // Peepholes: i 1 + 10, f 3 + 10, C = 13 * 10 + 11 * 4, o 2 + C.
  out = Invoke("LSTM", {x, w, r, {}, {}, h0, c0, p}, Linear(3), {.num_outputs = 3});
  CHECK(FloatsOf(out[2]) == Floats{174});
  CHECK(FloatsOf(out[1]) == Floats{176 * 174});
  // The forget gate coupled to the input gate, which is 1: C = 0 * 10 + 4.
  out = Invoke("LSTM", {x, w, r, {}, {}, h0, c0}, With(Linear(3), {{"input_forget", 1}}),
               {.num_outputs = 3});
  CHECK(FloatsOf(out[2]) == Floats{4});
  // Gates are clipped, the cell is not: i 1, o 1.5, f 1.5, c 1.5.
  out = Invoke("LSTM", {x, w, r, {}, {}, h0, c0}, With(Linear(3), {{"clip", 1.5f}}),
               {.num_outputs = 3});
  CHECK(FloatsOf(out[2]) == Floats{16.5f});
  CHECK(FloatsOf(out[1]) == Floats{24.75f});
  // Both biases are added: i 1 + 1 + 10.
  const Tensor b = T({1, 8}, {1, 0, 0, 0, 10, 0, 0, 0});
  out = Invoke("LSTM", {x, w, r, b, {}, h0, c0}, Linear(3), {.num_outputs = 3});
  CHECK(FloatsOf(out[2]) == Floats{3 * 10 + 12 * 4});
}

TEST_CASE("The state of one step goes into the next") {
  // i 1, o 1, f 1, c x + h: C1 = 2, H1 = 2; C2 = 2 + (3 + 2), H2 = 7.
  const Tensor x = T({2, 1, 1}, {2, 3}), w = T({1, 4, 1}, {0, 0, 0, 1}), r = w;
  const Tensor b = T({1, 8}, {1, 1, 1, 0, 0, 0, 0, 0});
  const auto out = Invoke("LSTM", {x, w, r, b}, Linear(3), {.num_outputs = 3});
  CHECK(FloatsOf(out[0]) == Floats{2, 7});
  CHECK(FloatsOf(out[2]) == Floats{7});
}

TEST_CASE("A GRU resets before or after the linear part") {
  const Tensor x = T({1, 1, 1}, {1}), h0 = T({1, 1, 1}, {2});
  const Tensor w = T({1, 3, 1}, {0.5f, 3, 5}), r = T({1, 3, 1}, {0, 0, 7});
  const Tensor b = T({1, 6}, {0, 0, 0, 0, 0, 100});
  // z 0.5, r 3. Before: h~ = 5 + 7 * (3 * 2) + 100; after: 5 + 3 * (7 * 2 + 100).
  auto out = Invoke("GRU", {x, w, r, b, {}, h0}, Linear(2), {.num_outputs = 2});
  CHECK(FloatsOf(out[1]) == Floats{0.5f * 147 + 0.5f * 2});
  out = Invoke("GRU", {x, w, r, b, {}, h0}, With(Linear(2), {{"linear_before_reset", 1}}),
               {.num_outputs = 2});
  CHECK(FloatsOf(out[1]) == Floats{0.5f * 347 + 0.5f * 2});
}

TEST_CASE("By default gates are sigmoids and the rest tanh") {
  const Tensor x = T({1, 1, 1}, {1}), r = T({1, 1, 1}, {0});
  CHECK(FloatsOf(Invoke("RNN", {x, T({1, 1, 1}, {0.5f}), r}, {}, {.num_outputs = 2})[1])[0] ==
        doctest::Approx(std::tanh(0.5)));
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto lstm = Invoke("LSTM", {x, T({1, 4, 1}, {1, 2, 3, 4}), T({1, 4, 1}, {0, 0, 0, 0})}, {},
                           {.num_outputs = 3});
  const double cell = sigmoid(1) * std::tanh(4.);
  CHECK(FloatsOf(lstm[2])[0] == doctest::Approx(cell));
  CHECK(FloatsOf(lstm[1])[0] == doctest::Approx(sigmoid(2) * std::tanh(cell)));
}

// Sums of all inputs so far.
Floats Sums(const Tensor& x, Arguments args, const Tensor& lengths = {}, int output = 0) {
  const bool both = args.Get<std::string>("direction", "") == "bidirectional";
  const int64_t d = both ? 2 : 1;
  Arguments all = With(Linear(static_cast<int>(d)), std::move(args));
  return FloatsOf(Invoke("RNN", {x, Filled({d, 1, 1}, 1), Filled({d, 1, 1}, 1), {}, lengths}, all,
                         {.num_outputs = 2})[static_cast<size_t>(output)]);
}

TEST_CASE("Forward, reverse and both, with sequences that end early") {
  const Tensor x = T({3, 2, 1}, {1, 10, 2, 20, 3, 30});  // sequences 1 2 3 and 10 20 30
  const Tensor lengths = Tensor::From<int32_t>({2}, {3, 2});
  CHECK(Sums(x, {}) == Floats{1, 10, 3, 30, 6, 60});
  CHECK(Sums(x, {{"direction", "reverse"}}) == Floats{6, 60, 5, 50, 3, 30});
  CHECK(Sums(x, {}, lengths) == Floats{1, 10, 3, 30, 6, 0});
  CHECK(Sums(x, {}, lengths, 1) == Floats{6, 30});
  CHECK(Sums(x, {{"direction", "reverse"}}, lengths) == Floats{6, 30, 5, 20, 3, 0});
  CHECK(Sums(x, {{"direction", "reverse"}}, lengths, 1) == Floats{6, 30});
  // Steps, directions, sequences.
  CHECK(Sums(x, {{"direction", "bidirectional"}}, lengths) ==
        Floats{1, 10, 6, 30, 3, 30, 5, 20, 6, 0, 3, 0});
  CHECK(Sums(x, {{"direction", "bidirectional"}}, lengths, 1) == Floats{6, 30, 6, 30});
  const Tensor none = Tensor::From<int32_t>({2}, {0, 1});
  CHECK(Sums(x, {}, none, 1) == Floats{0, 10});
}

TEST_CASE("Layout 1 has the batch first everywhere") {
  const Tensor x = T({2, 3, 1}, {1, 2, 3, 10, 20, 30});
  CHECK(Sums(x, {{"layout", 1}}) == Floats{1, 3, 6, 10, 30, 60});
  // Sequences, steps, directions.
  CHECK(Sums(x, {{"layout", 1}, {"direction", "bidirectional"}}) ==
        Floats{1, 6, 3, 5, 6, 3, 10, 60, 30, 50, 60, 30});
  const Tensor h0 = T({2, 1, 1}, {100, 1000});
  const auto out = Invoke("RNN", {x, Filled({1, 1, 1}, 1), Filled({1, 1, 1}, 1), {}, {}, h0},
                          With(Linear(1), {{"layout", 1}}), {.num_outputs = 2});
  CHECK(out[1].shape() == Shape{2, 1, 1});
  CHECK(FloatsOf(out[1]) == Floats{106, 1060});
}

TEST_CASE("Each activation, with its own numbers in the order of the list") {
  auto value = [](Names names, float x, std::vector<float> alpha = {},
                  std::vector<float> beta = {}) {
    return RecurrentFunctions(names, alpha, beta, "RNN").back()(static_cast<double>(x));
  };
  CHECK(value({"Relu"}, -2) == 0);
  CHECK(value({"relu"}, 2) == 2);  // in any case
  CHECK(value({"Affine"}, 2, {3}, {1}) == 7);
  CHECK(value({"LeakyRelu"}, -2, {0.5f}) == -1);
  CHECK(value({"LeakyRelu"}, -2) == doctest::Approx(-0.02));
  CHECK(value({"ThresholdedRelu"}, 0.5) == 0);
  CHECK(value({"ThresholdedRelu"}, 0.5, {0.25f}) == 0.5);
  CHECK(value({"ScaledTanh"}, 1, {2}, {0.5f}) == doctest::Approx(2 * std::tanh(0.5)));
  CHECK(value({"HardSigmoid"}, 1) == doctest::Approx(0.7));
  CHECK(value({"HardSigmoid"}, 100) == 1);
  CHECK(value({"Elu"}, -1) == doctest::Approx(std::exp(-1.) - 1));
  CHECK(value({"Softsign"}, -3) == -0.75);
  CHECK(value({"Softplus"}, 0) == doctest::Approx(std::log(2.)));
  CHECK(value({"Softplus"}, 1000) == 1000);
  CHECK(value({"Elu", "Tanh", "LeakyRelu"}, -1, {7, 3}) == -3);
  CHECK(value({"Affine", "HardSigmoid"}, 0, {1, 1}, {0, 0.25f}) == 0.25);
}

TEST_CASE("The shapes of a layer's outputs are inferred from its inputs and attributes") {
  CHECK(Inferred("LSTM", {F({Sym("S"), Sym("B"), 3}), F({2, 20, 3}), F({2, 20, 5})},
                 {{"direction", "bidirectional"}},
                 3) == "float32[S, 2, B, 5] float32[2, B, 5] float32[2, B, 5]");
  CHECK(Inferred("GRU", {F({2, Sym("S"), 3}), F({1, 15, 3}), F({1, 15, 5})}, {{"layout", 1}}) ==
        "float32[2, S, 1, 5]");
  CHECK(Inferred("GRU", {F(SymbolicShape()), F(SymbolicShape()), F(SymbolicShape())},
                 {{"hidden_size", 5}}) == "float32[?, 1, ?, 5]");
}

TEST_CASE("Wrong shapes and attributes are refused") {
  const TensorInfo x = F({7, 2, 3}), w = F({1, 20, 3}), r = F({1, 20, 5});
  CHECK(Contains(Refused("LSTM", {x, F({1, 20, 4}), r}), "input 1"));
  CHECK(Contains(Refused("LSTM", {x, F({1, 15, 3}), r}), "inference finds float32[1, 20, 3]"));
  CHECK(Contains(Refused("LSTM", {F({7, 3}), w, r}), "input 0 is float32[7, 3], expected rank 3"));
  CHECK(Contains(Refused("LSTM", {x, w, r}, {{"hidden_size", 6}}),
                 "hidden_size is 6, but R is float32[1, 20, 5]"));
  CHECK(Contains(Refused("LSTM", {x, w, r}, {{"hidden_size", -1}}), "hidden_size is -1"));
  CHECK(Contains(Inferred("LSTM", {x, w, r}, {{"direction", "sideways"}}),
                 "is 'sideways', which is none of its values"));
  CHECK(Contains(Refused("LSTM", {x, w, r, kLeftOut, kLeftOut, F({1, 3, 5})}), "input 5"));
  CHECK(Contains(Refused("LSTM", {x, w, r, kLeftOut, kLeftOut, kLeftOut, kLeftOut, F({1, 20})}),
                 "input 7"));
  CHECK(Contains(Refused("LSTM", {x, w, r, kLeftOut, F({2})}), "expected one of [int32]"));
  const Tensor one = T({1, 1, 1}, {1});
  auto run = [&](Arguments args, const Tensor& lengths = {}) {
    return ErrorOf([&] {
             Invoke("RNN", {one, one, one, {}, lengths}, args, {.num_outputs = 1});
           })
        .message();
  };
  CHECK(
      Contains(run({{"activations", Names{"Tanh", "Tanh"}}}), "expected 1: 1 for each direction"));
  CHECK(Contains(run({{"activations", Names{"Sigmoit"}}}), "did you mean 'Sigmoid'"));
  CHECK(Contains(run({{"activation_alpha", std::vector<float>{1}}}),
                 "the activations [Tanh] use 0 and 0"));
  CHECK(Contains(run({{"clip", -1.f}}), "clip is -1"));
  CHECK(Contains(run({}, Tensor::From<int32_t>({1}, {2})), "sequence_lens[0] is 2, but X has 1"));
  CHECK(Contains(run({}, Tensor::From<int32_t>({1}, {-1})), "sequence_lens[0] is -1"));
}

TEST_CASE("Without a graph, too, wrong shapes are refused before anything is read") {
  const auto text = [](const char* op, std::vector<Tensor> inputs) {
    return std::string(
        ErrorOf([&] { Invoke(op, std::move(inputs), {}, {.num_outputs = 1}); }).what());
  };
  const Tensor one = T({1, 1, 1}, {1});
  CHECK(Contains(text("RNN", {Random({1, 1, 4096}, 1), one, one}), "input 1 of RNN"));
  CHECK(Contains(text("RNN", {one, Random({1, 64, 1}, 1), Random({1, 64, 64}, 2), {}, {}, one}),
                 "input 5 of RNN"));
  CHECK(Contains(
      text("RNN", {Random({1, 4096, 1}, 1), one, one, {}, Tensor::From<int32_t>({1}, {1})}),
      "input 4 of RNN"));
  CHECK(Contains(text("GRU", {T({1}, {1}), one, one}), "GRU: input 0 is"));
}

TEST_CASE("A sequence without steps ends with zeros, as in ONNX Runtime") {
  const Tensor w = Filled({1, 2, 3}, 1), r = Filled({1, 2, 2}, 1), first = Filled({1, 2, 2}, 1);
  auto out = Invoke("RNN", {Tensor({0, 2, 3}, DType::kFloat32), w, r, {}, {}, first}, {},
                    {.num_outputs = 2});
  CHECK(out[0].shape() == Shape{0, 1, 2, 2});
  CHECK(FloatsOf(out[1]) == Floats(4, 0.f));
  const Tensor lengths = Tensor::From<int32_t>({2}, {0, 1}), x = Filled({2, 2, 3}, 0);
  out = Invoke("RNN", {x, w, r, {}, lengths, first}, {}, {.num_outputs = 2});
  const auto state = static_cast<float>(std::tanh(2.));
  CHECK(FloatsOf(out[0]) == Floats{0, 0, state, state, 0, 0, 0, 0});
  CHECK(FloatsOf(out[1]) == Floats{0, 0, state, state});
  out = Invoke("RNN", {Tensor({4, 0, 3}, DType::kFloat32), w, r}, {}, {.num_outputs = 2});
  CHECK(out[0].shape() == Shape{4, 1, 0, 2});
}

TEST_CASE("The layers keep the promises of their schemas, also for half floats") {
  const Tensor x = Random({4, 2, 3}, 1), lengths = Tensor::From<int32_t>({2}, {4, 2});
  auto check = [&](const char* op, int64_t gates, int outputs, std::vector<Tensor> more) {
    OperatorDef def(op, {"x", "w", "r", "b", "l", "h"}, {"y", "yh"},
                    {{"direction", "bidirectional"}});
    if (outputs == 3) def.Input("c").Input("p").Output("yc");
    std::vector<Tensor> inputs = {x,
                                  Random({2, gates * 5, 3}, 2),
                                  Random({2, gates * 5, 5}, 3),
                                  Random({2, gates * 10}, 4),
                                  lengths,
                                  Random({2, 2, 5}, 5)};
    inputs.insert(inputs.end(), more.begin(), more.end());
    CheckNode(def, inputs);
  };
  check("LSTM", 4, 3, {Random({2, 2, 5}, 6), Random({2, 15}, 7)});
  check("GRU", 3, 2, {});
  check("RNN", 1, 2, {});
  const Tensor half = Tensor::From<float16>({1, 1, 1}, {0.5f});
  CHECK(static_cast<float>(Invoke("RNN", {half, half, half}, Linear(1), {.num_outputs = 1})[0]
                               .data<float16>()[0]) == 0.25f);
}

}  // namespace
}  // namespace recurrent_test
