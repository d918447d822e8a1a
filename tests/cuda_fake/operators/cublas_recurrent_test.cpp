// LSTM, GRU and RNN on cuBLASLt against the reference kernels of the CPU.
#include "opkit/backends/cuda/libraries/cublas_recurrent.hpp"

#include "fake_libraries.hpp"
#include "on_cuda.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace cublas_recurrent_test {
using namespace opkit;

namespace {

constexpr int64_t kSteps = 4, kBatch = 3, kInput = 5, kHidden = 2;

struct Layer {
  const char* op;
  int64_t gates;
  const char* variant;
  int outputs;
};
constexpr Layer kLayers[] = {
    {"LSTM", 4, "input_forget", 3}, {"GRU", 3, "linear_before_reset", 2}, {"RNN", 1, nullptr, 2}};

struct Parts {
  bool bias = true, lengths = true, states = true, peepholes = true;
};
// Returns the inputs of a layer. Parts that are not given are left out.
std::vector<Tensor> Inputs(const Layer& layer, int64_t directions, bool batch_first, DType dtype,
                           const Parts& parts = {}) {
  const int64_t width = layer.gates * kHidden;
  const Shape state =
      batch_first ? Shape{kBatch, directions, kHidden} : Shape{directions, kBatch, kHidden};
  const auto random = [dtype](const Shape& shape, unsigned seed, bool given = true) {
    if (!given) return Tensor();
    Tensor out(shape, dtype);
    for (int64_t i = 0; const float number : Random(shape, seed).ToVector<float>())
      detail::SetNumber(out, i++, number);
    return out;
  };
  std::vector<Tensor> inputs = {
      random(batch_first ? Shape{kBatch, kSteps, kInput} : Shape{kSteps, kBatch, kInput}, 1),
      random({directions, width, kInput}, 2),
      random({directions, width, kHidden}, 3),
      random({directions, 2 * width}, 4, parts.bias),
      parts.lengths ? Vector<int32_t>({4, 0, 2}) : Tensor(),
      random(state, 5, parts.states)};
  if (layer.outputs < 3) return inputs;
  inputs.push_back(random(state, 6, parts.states));
  inputs.push_back(random({directions, 3 * kHidden}, 7, parts.peepholes));
  return inputs;
}
std::vector<Tensor> Run(const Layer& layer, const std::vector<Tensor>& inputs, Device device,
                        const char* backend, const Arguments& args) {
  return Invoke(layer.op, inputs, args,
                {.device = device,
                 .backends = backend,
                 .num_outputs = layer.outputs,
                 .backend_need = kRequired});
}
void Compare(const Layer& layer, const std::vector<Tensor>& inputs, const Arguments& args,
             double tolerance = 1e-5) {
  std::string node = layer.op;
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const auto expected = Run(layer, inputs, {}, "reference", args);
  std::vector<Tensor> there;
  for (const Tensor& input : inputs) there.push_back(OnCuda(input));
  const auto found = Run(layer, there, kCuda0, "cublas", args);
  REQUIRE(found.size() == expected.size());
  for (size_t o = 0; o < found.size(); ++o)
    CHECK(Difference(OnHost(found[o]), expected[o], {.rtol = tolerance, .atol = tolerance}) == "");
}

}  // namespace

TEST_CASE("recurrent layers in all directions, layouts and variants") {
  for (const Layer& layer : kLayers)
    for (const char* direction : {"forward", "reverse", "bidirectional"})
      for (const int64_t layout : {0, 1})
        for (const int64_t variant : {0, 1}) {
          if (variant == 1 && !layer.variant) continue;
          Arguments args{{"direction", direction}, {"layout", layout}};
          if (variant == 1) args.Set(layer.variant, variant);
          const int64_t directions = direction[0] == 'b' ? 2 : 1;
          Compare(layer, Inputs(layer, directions, layout == 1, DType::kFloat32), args);
        }
}

TEST_CASE("recurrent layers without their optional inputs, and of other types") {
  for (const Layer& layer : kLayers) {
    Compare(layer, Inputs(layer, 1, false, DType::kFloat32, {false, false, false}), {});
    Compare(layer, Inputs(layer, 1, false, DType::kFloat32, {true, false, true}), {});
    Compare(layer, Inputs(layer, 1, false, DType::kFloat64), {}, 1e-12);
    Compare(layer, Inputs(layer, 1, false, DType::kFloat16), {}, 2e-3);
    Compare(layer, Inputs(layer, 1, false, DType::kBFloat16), {}, 2e-2);
  }
}

TEST_CASE("recurrent layers bound their gates and have other activations") {
  using Names = std::vector<std::string>;
  Compare(kLayers[0], Inputs(kLayers[0], 1, false, DType::kFloat32),
          {{"clip", 0.25f}, {"activations", Names{"HardSigmoid", "Softsign", "Affine"}}});
  Compare(kLayers[1], Inputs(kLayers[1], 2, false, DType::kFloat32),
          {{"clip", 0.5f},
           {"direction", "bidirectional"},
           {"activations", Names{"Sigmoid", "Elu", "HardSigmoid", "ScaledTanh"}}});
  for (const char* function : {"Relu", "LeakyRelu", "ThresholdedRelu", "Softplus"})
    Compare(kLayers[2], Inputs(kLayers[2], 1, false, DType::kFloat32),
            {{"activations", Names{function}}});
}

TEST_CASE("recurrent layers without steps, sequences or numbers") {
  for (const Layer& layer : kLayers) {
    std::vector<Tensor> inputs =
        Inputs(layer, 1, false, DType::kFloat32, {true, false, true, true});
    inputs[0] = Tensor({0, kBatch, kInput}, DType::kFloat32);
    Compare(layer, inputs, {});
    inputs[0] = Tensor({kSteps, kBatch, 0}, DType::kFloat32);
    inputs[1] = Tensor({1, layer.gates * kHidden, 0}, DType::kFloat32);
    Compare(layer, inputs, {});
    inputs[0] = Tensor({kSteps, 0, 0}, DType::kFloat32);
    for (size_t i = 5; i < inputs.size() && i < 7; ++i)
      inputs[i] = Tensor({1, 0, kHidden}, DType::kFloat32);
    Compare(layer, inputs, {});
  }
}

TEST_CASE("one product computes the inputs of all steps") {
  const Layer& layer = kLayers[0];
  std::vector<Tensor> inputs;
  for (const Tensor& input : Inputs(layer, 2, false, DType::kFloat32))
    inputs.push_back(OnCuda(input));
  fake::TakeCublasCalls();
  Run(layer, inputs, kCuda0, "cublas", {{"direction", "bidirectional"}});
  std::vector<fake::CublasCall> expected(1, {kSteps * kBatch, 4 * kHidden, kInput, 2});
  expected.resize(1 + kSteps, {kBatch, 4 * kHidden, kHidden, 2});
  CHECK(fake::TakeCublasCalls() == expected);
}

TEST_CASE("a length outside the steps counts as 0, and a later run reports it") {
  const Layer& layer = kLayers[2];
  for (const int wrong : {5, -1}) {
    std::vector<Tensor> inputs = Inputs(layer, 1, false, DType::kFloat32);
    inputs[4] = Vector<int32_t>({4, wrong, 2});
    Workspace workspace;
    OperatorDef def(layer.op, {}, {"y"});
    for (size_t i = 0; i < inputs.size(); ++i) {
      def.Input(StrCat("i", i));
      *workspace.CreateTensor(StrCat("i", i)) = OnCuda(inputs[i]);
    }
    def.Device(kCuda0).Backends("cublas");
    const auto op = CreateOperator(def, &workspace);
    op->Run();
    inputs[4] = Vector<int32_t>({4, 0, 2});
    const Tensor expected = Run(layer, inputs, {}, "reference", {})[0];
    CHECK(Difference(OnHost(*workspace.GetTensor("y")), expected, {.rtol = 1e-5, .atol = 1e-5}) ==
          "");
    CHECK(Contains(ErrorOf([&] { op->Run(); }).what(),
                   StrCat("RNN: an earlier run had the length ", wrong, ", which is outside")));
  }
}

TEST_CASE("recorded runs read other lengths, and report one outside the steps") {
  for (const Layer& layer : kLayers)
    CheckRecordedOnCuda("cublas", layer.op, Inputs(layer, 1, false, DType::kFloat32), {}, 4,
                        Vector<int32_t>({1, 3, 4}), Vector<int32_t>({4, kSteps + 1, 2}),
                        StrCat(layer.op, ": the length 5 is outside its axis"), 1e-5);
}

}  // namespace cublas_recurrent_test
