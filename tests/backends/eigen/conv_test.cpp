// Conv of the "eigen" backend: the same as the plain operator, however it is cut up.
#include <doctest/doctest.h>

#include <cmath>

#include "opkit/backends/eigen/conv.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace conv_test {
using namespace opkit;

namespace {

void Compare(const Shape& x, const Shape& w, Arguments args = {}, bool bias = true) {
  std::vector<Tensor> inputs = {Random(x, 1), Random(w, 2)};
  if (bias) inputs.push_back(Random({w[0]}, 3));
  CheckSameOn("eigen", "Conv", inputs, std::move(args));
}

TEST_CASE("Kernels of one pixel: whole vectors, tails, few pixels, many channels") {
  Compare({1, 8, 6, 16}, {16, 8, 1, 1});
  Compare({2, 7, 5, 7}, {13, 7, 1, 1});
  Compare({1, 1100, 3, 7}, {21, 1100, 1, 1});
  Compare({1, 40, 1, 1}, {10, 40, 1, 1});
  Compare({3, 12, 2, 2}, {10, 6, 1, 1}, {{"group", 2}}, false);
  Compare({1, 12, 70}, {24, 4, 1}, {{"group", 3}});
  Compare({2, 3, 4, 3, 5}, {7, 3, 1, 1, 1});
  Compare({1, 6, 9, 9}, {6, 1, 1, 1}, {{"group", 6}});
  Compare({1, 5, 9, 9}, {6, 5, 1, 1}, {{"strides", Ints{2, 2}}});
  Compare({1, 5, 9, 9}, {6, 5, 1, 1}, {{"pads", Ints{1, 0, 2, 3}}});
}

TEST_CASE("One window along an axis of one element may read its pad alone") {
  const Arguments args = {{"pads", Ints{1, 0, 0, 0}}, {"strides", Ints{2, 1}}};
  Compare({1, 1, 1, 4}, {1, 1, 1, 2}, args);
  Compare({1, 3, 1, 40}, {5, 3, 1, 2}, args);
}

TEST_CASE("Depthwise kernels, with more outputs than channels, too") {
  for (int64_t width : {3, 20, 40, 80, 100, 200})
    for (int64_t stride : {1, 2}) {
      Compare({1, 5, 11, width}, {5, 1, 3, 3},
              {{"group", 5}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, stride}}});
      Compare({1, 5, 11, width}, {5, 1, 5, 5},
              {{"group", 5}, {"pads", Ints{2, 2, 2, 2}}, {"strides", Ints{1, stride}}}, false);
    }
  Compare({2, 3, 9, 20}, {6, 1, 3, 3}, {{"group", 3}});
  Compare({2, 3, 9, 20}, {3, 1, 2, 3}, {{"group", 3}, {"dilations", Ints{3, 2}}});
}

TEST_CASE("Short and long lines, deep and shallow images") {
  Compare({1, 3, 30, 50}, {16, 3, 3, 3}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  Compare({1, 70, 7, 7}, {20, 70, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}});
  Compare({1, 70, 13, 13}, {20, 70, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}});
  Compare({1, 3, 40, 40}, {9, 3, 7, 7}, {{"strides", Ints{2, 2}}, {"pads", Ints{3, 3, 3, 3}}});
  Compare({1, 64, 1, 40}, {60, 64, 1, 3}, {{"pads", Ints{0, 1, 0, 1}}});
  Compare({1, 4, 17, 9}, {8, 4, 7, 1}, {{"pads", Ints{3, 0, 3, 0}}});
  Compare({1, 1, 1, 600}, {18, 1, 1, 256}, {{"strides", Ints{1, 128}}});
  Compare({1, 600, 4, 4}, {3, 600, 4, 4});
}

TEST_CASE("Few pixels of many images give what the plain operator gives") {
  Compare({31, 1, 640}, {258, 1, 256}, {{"strides", Ints{128}}}, false);
  Compare({300, 129, 4}, {128, 129, 3}, {{"pads", Ints{1, 1}}});
  Compare({31, 64, 2}, {64, 64, 3}, {{"pads", Ints{1, 1}}, {"strides", Ints{2}}});
  Compare({31, 128, 1}, {1, 128, 1});
  Compare({5, 24, 3, 4}, {30, 12, 2, 2}, {{"group", 2}, {"dilations", Ints{1, 2}}});
  Compare({7, 20, 5, 3}, {11, 20, 5, 3});
  Compare({7, 20, 5, 3}, {12, 10, 5, 3}, {{"group", 2}}, false);
  Compare({1, 300, 2, 3, 2}, {40, 300, 2, 2, 2}, {{"pads", Ints{1, 0, 0, 0, 0, 1}}});
}

TEST_CASE("Axes of one element give what the plain operator gives") {
  Compare({1, 40, 200, 1}, {24, 40, 5, 1});
  Compare({1, 40, 1, 90}, {24, 40, 1, 5}, {{"strides", Ints{1, 2}}});
  Compare({2, 40, 1, 1}, {24, 40, 1, 1});
  Compare({1, 6, 1, 40, 1, 30}, {8, 6, 1, 3, 1, 3});
  Compare({1, 6, 1, 40}, {8, 6, 3, 1}, {{"pads", Ints{1, 0, 1, 0}}});
}

TEST_CASE("One, three and four spatial axes give what the plain operator gives") {
  Compare({2, 5, 700}, {33, 5, 5}, {{"pads", Ints{2, 2}}, {"strides", Ints{3}}});
  Compare({2, 4, 5, 6, 7}, {10, 4, 3, 2, 3},
          {{"pads", Ints{1, 0, 1, 2, 1, 1}}, {"strides", Ints{2, 1, 2}}});
  Compare({1, 4, 5, 6, 7}, {10, 2, 3, 2, 3}, {{"dilations", Ints{2, 3, 1}}, {"group", 2}});
  Compare({1, 2, 3, 4, 3, 5}, {4, 2, 2, 2, 2, 2}, {{"pads", Ints{1, 1, 0, 0, 0, 1, 1, 1}}});
}

TEST_CASE("Random layers give what the plain operator gives") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 engine(seed);
    auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(engine() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t spatial = draw(1, 3), groups = draw(0, 2) ? 1 : draw(1, 4);
    const bool depthwise = draw(0, 4) == 0;
    const int64_t channels = depthwise ? 1 : draw(1, 20);
    Ints x = {draw(1, 2), channels * groups}, w = {groups * draw(1, depthwise ? 2 : 20), channels};
    Ints strides, dilations, begin, end;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      w.push_back(draw(1, 4));
      dilations.push_back(draw(1, 3));
      strides.push_back(draw(1, 3));
      begin.push_back(draw(0, 3));
      end.push_back(draw(0, 3));
      x.push_back((w.back() - 1) * dilations.back() + draw(1, axis + 1 < spatial ? 12 : 60));
    }
    begin.insert(begin.end(), end.begin(), end.end());
    INFO("seed ", seed);
    Compare(Shape(x), Shape(w),
            {{"group", groups}, {"strides", strides}, {"dilations", dilations}, {"pads", begin}},
            draw(0, 1) == 1);
  }
}

TEST_CASE("Without images there is no output, without channels only the bias") {
  Compare({0, 3, 5, 5}, {4, 3, 3, 3});
  Compare({2, 0, 5, 5}, {4, 0, 3, 3});
  Compare({2, 0, 1, 1}, {4, 0, 1, 1});
}

TEST_CASE("A kernel is proposed for float32, with memory for a block of each thread") {
  auto propose = [](DType dtype, SymbolicShape x, SymbolicShape y) {
    const OperatorDef def("Conv", {"x", "w"}, {"y"});
    const std::vector<TensorInfo> inputs = {{dtype, std::move(x)}, {dtype, Shape{8, 3, 3, 3}}};
    const std::vector<TensorInfo> outputs = {{dtype, std::move(y)}};
    return ProposeOf("eigen", KernelQuery{def, inputs, outputs});
  };
  const std::vector<KernelConfig> known =
      propose(DType::kFloat32, Shape{1, 3, 500, 500}, Shape{1, 8, 498, 498});
  REQUIRE(known.size() == 1);
  CHECK(known[0].scratch_bytes > 0);
  CHECK(known[0].scratch_bytes % 64 == 0);
  // A part of the image, which itself has 3 MB.
  CHECK(known[0].scratch_bytes <= int64_t{400} * 1024 * ThreadPool::Current().threads());
  CHECK(propose(DType::kFloat32, {Sym("N"), 3, 9, 9}, {Sym("N"), 8, 7, 7})[0].scratch_bytes == 0);
  CHECK(Contains(ErrorOf([&] {
                   propose(DType::kFloat64, Shape{1, 3, 9, 9}, Shape{1, 8, 7, 7});
                 }).message(),
                 "it computes float32, and input 0 is float64"));
}

TEST_CASE("A proposal takes no time in proportion to an image's extent") {
  const TensorInfo image(DType::kFloat32, Shape{1, 3, 4, int64_t{1} << 40});
  const TensorInfo w(DType::kFloat32, Shape{4, 3, 3, 3});
  OperatorDef def("Conv", {"x", "w"}, {"y"}, {{"pads", Ints{0, 1, 0, 1}}});
  def.Backends("eigen");
  const auto outputs = OpRegistry::Global().GetSchema("Conv").InferOutputs(def, {image, w});
  const auto all = KernelCandidates(def, std::vector<TensorInfo>{image, w}, outputs);
  CHECK(Contains(all[0].dropped, "too large"));
}

TEST_CASE("Other shapes in the next run, and another type refused") {
  Workspace ws;
  Tensor *x = ws.CreateTensor("x"), *w = ws.CreateTensor("w");
  *w = Random({4, 3, 3, 3}, 1);
  const OperatorDef def = OperatorDef("Conv", {"x", "w"}, {"y"}).Backends("eigen");
  const auto conv = CreateOperator(def, &ws);
  for (int64_t size : {9, 4, 20}) {
    *x = Random({1, 3, size, size}, 2);
    conv->Run();
    CheckClose(*ws.GetTensor("y"), Invoke("Conv", {*x, *w}, {}, {.backends = "reference"})[0]);
  }
  *x = Random({1, 3, 9, 9}, 2, DType::kFloat64);
  CHECK(Contains(ErrorOf([&] { conv->Run(); }).message(),
                 "computes float32, and input 0 is float64"));
}

// Returns the names of the variants that the kernel proposes.
std::vector<std::string> VariantsFor(const Shape& x, const Shape& w, const Arguments& args = {},
                                     int threads = 1, bool is_constant = false) {
  const OperatorDef def("Conv", {"x", "w"}, {"y"}, args);
  std::vector<TensorInfo> inputs = {{DType::kFloat32, x}, {DType::kFloat32, w}};
  const Tensor weights(w, DType::kFloat32);
  if (is_constant) inputs[1].constant = &weights;
  const auto outputs = OpRegistry::Global().GetSchema("Conv").InferOutputs(def, inputs);
  ThreadPool pool(threads);
  const PoolScope scope(pool);
  std::vector<std::string> names;
  int64_t usual_bytes = 0;
  for (const KernelConfig& config : ProposeOf("eigen", KernelQuery{def, inputs, outputs})) {
    CHECK(config.cost_ns < 0);  // the first one is chosen where nothing was measured
    usual_bytes = names.empty() ? config.scratch_bytes : usual_bytes;
    CHECK(config.scratch_bytes >= usual_bytes);  // by plans of the least memory, too
    names.push_back(config.variant);
    const std::string layout = ToString(config.input_layout(1));
    CHECK(layout == (is_constant && config.variant == "winograd" ? "winograd" : "standard"));
  }
  return names;
}
// Returns the configuration of the variant, with weights in its layout or in the standard one.
KernelConfig WinogradConfig(bool has_points, bool has_bias) {
  KernelConfig config;
  config.variant = "winograd";
  if (has_points) config.input_layouts = {{}, {detail::WinogradWeights::Id(), {}}};
  if (has_points && has_bias) config.input_layouts.emplace_back();
  return config;
}
Tensor ToPoints(const Tensor& weights) {
  return ConvertLayout(weights, {detail::WinogradWeights::Id(), {}});
}
// Compares the variant with the plain operator, on 1 and on 3 threads, with weights of both
// layouts.
void CompareWinograd(const Shape& x, const Shape& w, const Ints& pads, bool has_bias) {
  INFO(ToString(x), " by ", ToString(w), ", pads ", pads);
  Arguments args = {{"pads", pads}};
  REQUIRE(VariantsFor(x, w, args, 1, true) == std::vector<std::string>{"", "winograd"});
  std::vector<Tensor> inputs = {Random(x, 1), Random(w, 2)};
  if (has_bias) inputs.push_back(Random({w[0]}, 3));
  // So that outputs are about 1, as in models.
  for (int64_t i = 0; i < inputs[1].numel(); ++i)
    inputs[1].mutable_data<float>()[i] /= std::sqrt(static_cast<float>(w[1]));
  const Tensor expected = Invoke("Conv", inputs, args, {.backends = "reference"})[0];
  OperatorDef def("Conv", {"x", "w"}, {"y"}, args);
  Workspace ws;
  *ws.CreateTensor("x") = inputs[0];
  if (has_bias) *ws.CreateTensor("b") = inputs[2];
  if (has_bias) def.Input("b");
  std::vector<float> first;
  for (const bool has_points : {true, false})
    for (const int threads : {1, 3}) {
      *ws.CreateTensor("w") = has_points ? ToPoints(inputs[1]) : inputs[1];
      const KernelConfig config = WinogradConfig(has_points, has_bias);
      ThreadPool pool(threads);
      const PoolScope scope(pool);
      for (const Kernel* kernel : OpRegistry::Global().KernelsOf("Conv"))
        if (kernel->backend == "eigen")
          CreateOperator(def, &ws, {.kernel = kernel, .config = &config})->Run();
      const std::vector<float> found = ws.GetTensor("y")->ToVector<float>();
      CHECK(Difference(*ws.GetTensor("y"), expected, {.rtol = 1e-5, .atol = 2e-5}) == "");
      if (first.empty()) first = found;
      CHECK(found == first);
    }
}

TEST_CASE("Winograd's algorithm is a variant that gives what the plain operator gives") {
  CompareWinograd({1, 16, 22, 27}, {32, 16, 3, 3}, {1, 1, 1, 1}, true);
  CompareWinograd({2, 19, 31, 26}, {33, 19, 3, 3}, {0, 0, 0, 0}, false);
  CompareWinograd({1, 40, 20, 21}, {18, 40, 3, 3}, {3, 0, 1, 5}, true);  // pads alone, in corners
  CompareWinograd({1, 17, 3, 850}, {31, 17, 3, 3}, {0, 1, 0, 1}, true);  // several tasks in a line
  CompareWinograd({1, 192, 20, 20}, {16, 192, 3, 3}, {1, 1, 1, 1}, false);
  CompareWinograd({1, 700, 20, 20}, {17, 700, 3, 3}, {1, 1, 1, 1}, false);
}

TEST_CASE("Weights come back from the layout of Winograd's algorithm") {
  const Tensor weights = Random({19, 21, 3, 3}, 1);
  const Tensor points = ToPoints(weights);
  CHECK(LayoutBytes(points.layout(), points.shape(), DType::kFloat32) == 19 * 21 * (36 + 9) * 4);
  CHECK(ConvertLayout(points, {}).ToVector<float>() == weights.ToVector<float>());
  CHECK(ConvertLayout(ToPoints(Tensor({4, 0, 3, 3}, DType::kFloat32)), {}).numel() == 0);
  CHECK(ErrorOf([] {
          ToPoints(Random({4, 4, 3, 1}, 1));
        })
            .message()
            .find("[outputs, channels, 3, 3]") != std::string::npos);
}

TEST_CASE("A kernel proposes the variant where it may win, after its usual way") {
  const std::vector<std::string> usual = {""}, both = {"", "winograd"};
  CHECK(VariantsFor({1, 64, 56, 56}, {64, 64, 3, 3}) == both);
  CHECK(VariantsFor({1, 64, 56, 56}, {64, 64, 3, 3}, {{"strides", Ints{2, 2}}}) == usual);
  CHECK(VariantsFor({1, 64, 56, 56}, {64, 64, 3, 3}, {{"dilations", Ints{1, 2}}}) == usual);
  CHECK(VariantsFor({1, 64, 56, 56}, {64, 32, 3, 3}, {{"group", 2}}) == usual);
  CHECK(VariantsFor({1, 64, 56, 56}, {64, 64, 3, 5}) == usual);
  CHECK(VariantsFor({1, 64, 16, 16}, {64, 64, 3, 3}) == usual);  // few pixels for so many weights
  CHECK(VariantsFor({1, 64, 16, 16}, {64, 64, 3, 3}, {}, 1, true) == both);  // constant ones
  CHECK(VariantsFor({1, 64, 9, 9}, {64, 64, 3, 3}, {}, 1, true) == usual);
  CHECK(VariantsFor({1, 3, 56, 56}, {64, 3, 3, 3}) == usual);
  CHECK(VariantsFor({1, 64, 3000}, {64, 64, 3}) == usual);
}

// Counts the loops that are divided, and runs them here.
struct CountingRunner : detail::LoopRunner {
  int loops = 0;
  CountingRunner() {
    run = [](const detail::LoopRunner& self, int64_t n, int64_t, detail::RangeFunction body) {
      ++const_cast<CountingRunner&>(static_cast<const CountingRunner&>(self)).loops;
      body(0, n);
    };
  }
};

TEST_CASE("The variant of one thread divides no loop, and gives the same bits") {
  const std::vector<std::string> both = {"", "threads=1"};
  const Arguments pads = {{"pads", Ints{1, 1, 1, 1}}};
  CHECK(VariantsFor({1, 64, 14, 14}, {64, 64, 3, 3}, pads, 3) == both);
  CHECK(VariantsFor({1, 64, 14, 14}, {64, 64, 3, 3}, pads, 1) == std::vector<std::string>{""});
  CHECK(VariantsFor({1, 4, 4, 4}, {4, 4, 3, 3}, pads, 3) == std::vector<std::string>{""});
  CHECK(VariantsFor({9, 256, 40, 40}, {64, 256, 3, 2}, pads, 3) == std::vector<std::string>{""});
  for (const int64_t size : {14, 2}) {  // by tiles, by columns
    ThreadPool pool(3);
    const PoolScope scope(pool);
    Workspace ws;
    *ws.CreateTensor("x") = Random({1, 256, size, size}, 1);
    *ws.CreateTensor("w") = Random({512, 256, 3, 3}, 2);
    const OperatorDef def("Conv", {"x", "w"}, {"y"}, pads);
    std::vector<float> usual;
    for (const char* variant : {"", "threads=1"}) {
      KernelConfig config;
      config.variant = variant;
      CountingRunner runner;
      for (const Kernel* kernel : OpRegistry::Global().KernelsOf("Conv"))
        if (kernel->backend == "eigen") {
          const auto conv = CreateOperator(def, &ws, {.kernel = kernel, .config = &config});
          const detail::ScopedValue<const detail::LoopRunner*> counted(
              detail::t_loop_runner, static_cast<const detail::LoopRunner*>(&runner));
          conv->Run();
        }
      CHECK((runner.loops == 0) == (config.variant == "threads=1"));
      const std::vector<float> found = ws.GetTensor("y")->ToVector<float>();
      if (usual.empty()) usual = found;
      CHECK(found == usual);
    }
  }
}

TEST_CASE("A variant made for one shape runs others, too") {
  const Tensor weights = Random({32, 16, 3, 3}, 1);
  for (const bool has_points : {false, true}) {
    Workspace ws;
    *ws.CreateTensor("w") = has_points ? ToPoints(weights) : weights;
    const OperatorDef def("Conv", {"x", "w"}, {"y"});
    const KernelConfig config = WinogradConfig(has_points, false);
    std::unique_ptr<OperatorBase> conv;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf("Conv"))
      if (kernel->backend == "eigen") {
        ws.CreateTensor("x");
        conv = CreateOperator(def, &ws, {.kernel = kernel, .config = &config});
      }
    for (const int64_t size : {24, 5, 40}) {
      *ws.GetTensor("x") = Random({1, 16, size, size}, 2);
      conv->Run();
      const Tensor expected =
          Invoke("Conv", {*ws.GetTensor("x"), weights}, {}, {.backends = "reference"})[0];
      CHECK(Difference(*ws.GetTensor("y"), expected, {.rtol = 1e-4, .atol = 1e-4}) == "");
    }
  }
}

TEST_CASE("Conv keeps the promises of its schema on every kernel") {
  const OperatorDef def("Conv", {"x", "w", "b"}, {"y"},
                        {{"pads", Ints{1, 0, 0, 2}}, {"strides", Ints{2, 1}}});
  CheckOptions options;
  options.compare.bitwise_threads = true;
  options.compare.gradient = false;  // ops_test checks it, on smaller images
  CheckNode(def, {Random({2, 30, 41, 43}, 1), Random({24, 30, 3, 2}, 2), Random({24}, 3)}, options);
  CheckNode(OperatorDef("Conv", {"x", "w"}, {"y"}),
            {Random({1, 32, 23, 24}, 1), Random({24, 32, 3, 3}, 2)}, options);  // its variant, too
}

}  // namespace
}  // namespace conv_test
