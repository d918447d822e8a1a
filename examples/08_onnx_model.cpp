// Loads a real model and adds an operator of the program behind it: the share of speech in a sound.
// Links the standard operators, which CMake compiles as opkit::ops and opkit::eigen.
#include <cstdio>
#include <opkit/graph.hpp>
#include <opkit/interop/onnx.hpp>

using namespace opkit;

template <class Context>
void Percent(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, x.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 100 * x[i]; });
}
OPKIT_OP(Percent).SameShape<"x", "y">().Kernel<CPUContext>();

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "build/data/silero_vad-6.2.3/silero_vad/data";
  try {
    Graph g = LoadOnnx(folder + "/silero_vad_16k_sequence.onnx");
    g.AddNode(OperatorDef("Percent", {"speech_probs"}, {"percent"}));
    g.AddOutput("percent");

    const Plan plan = Compile(g, {.threads = 2});
    Executor exec(plan);

    const int64_t frames = 31, samples = 576;  // one second of silence at 16 kHz
    const std::vector<float> silence(static_cast<size_t>(frames * samples));
    const Tensor state = Tensor::From<float>({1, 1, 128}, std::vector<float>(128));
    const auto out = exec.Run(
        {{"input", Tensor::From<float>({frames, samples}, silence)}, {"h", state}, {"c", state}});

    float most = 0;
    for (float percent : out.Get("percent").ToVector<float>()) most = std::max(most, percent);
    std::printf("%d nodes in %lld bytes; at most %.1f%% speech\n", g.num_nodes(),
                static_cast<long long>(plan.memory().arena_bytes), most);
    return most < 10 ? 0 : 1;
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
