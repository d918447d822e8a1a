// A run of a known model on a CUDA device beside a run on the CPU, with inputs and outputs of the
// host's memory, for batches of 1 and 16.
#include <benchmark/benchmark.h>

#include <fstream>
#include <optional>

#include "models/inputs.hpp"
#include "opkit/backends/cuda/context.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/interop/onnx.hpp"

namespace {

using namespace opkit;

constexpr Device kCuda0{DeviceType::kCUDA, 0};

std::string PathOf(const std::string& model) {
  const char* folder = std::getenv("OPKIT_DATA_DIR");
  return std::string(folder ? folder : OPKIT_DATA_FOLDER) + "/" + model;
}

struct Model {
  std::string name, path;
  std::vector<NamedTensor> (*inputs)(int64_t batch);
  bool is_light = false;  // its weights are made by rule
};

std::vector<NamedTensor> Images(int64_t batch) {
  Tensor images({batch, 3, 224, 224}, DType::kFloat32);
  const Tensor ramp = Ramp();
  for (int64_t i = 0; i < images.numel(); ++i)
    images.mutable_data<float>()[i] = ramp.data<float>()[i % ramp.numel()];
  return {{"", images}};
}

const std::string kRapidocr = "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/";
const std::string kLight = "onnx-1.22.0/onnx/backend/test/data/light/light_";
const Model kModels[] = {
    {"magika", "magika-1.0.3/magika/models/standard_v3_3/model.onnx",
     [](int64_t batch) { return FileBytes(batch, std::string(1024 * (batch + 1), 'x')); }},
    {"rapidocr_rec", kRapidocr + "ch_PP-OCRv4_rec_infer.onnx",
     [](int64_t batch) { return Picture(batch, 48, 320); }},
    {"rapidocr_cls", kRapidocr + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
     [](int64_t batch) { return Picture(batch, 48, 192); }},
    {"rapidocr_det", kRapidocr + "ch_PP-OCRv4_det_infer.onnx",
     [](int64_t batch) { return Picture(batch, 320, 320); }},
    {"silero_vad_op15", "silero_vad-6.2.3/silero_vad/data/silero_vad_16k_op15.onnx",
     [](int64_t batch) { return Voices(batch); }},
    {"squeezenet", kLight + "squeezenet.onnx", Images, true},
    {"resnet50", kLight + "resnet50.onnx", Images, true},
    {"vgg19", kLight + "vgg19.onnx", Images, true},
};

// A model that is ready to run. Google Benchmark calls a function several times, so the last model
// is kept.
struct Prepared {
  std::string name;
  std::vector<NamedTensor> inputs;
  std::optional<Executor> executor;
  double device_mb = 0;
};

// Returns the weights' graph of a light model; its file has a batch of 1.
Graph LightGraph(const Model& model, const NamedTensor& input) {
  static std::string kept;  // making the weights takes seconds
  static Graph graph;
  if (kept != model.name) graph = WithWeights(LoadOnnx(PathOf(model.path)));
  kept = model.name;
  return detail::WithInputs(graph, {{graph.inputs().at(0).name, TensorInfo::Of(input.tensor)}});
}

Prepared& Prepare(const std::string& name, const Model& model, int64_t batch, bool on_cuda) {
  static Prepared last;
  if (last.name == name) return last;
  last.name.clear();
  last.executor.reset();  // gives its memory back
  last.inputs = model.inputs(batch);
  const Graph graph =
      model.is_light ? LightGraph(model, last.inputs[0]) : LoadOnnx(PathOf(model.path));
  if (model.is_light) last.inputs[0].name = graph.inputs().at(0).name;
  PlanOptions options;
  if (on_cuda) options.devices = {kCuda0, Device()};
  size_t free_before = 0, free_after = 0, total = 0;
  OPKIT_CUDA_CHECK(cudaMemGetInfo(&free_before, &total));
  last.executor.emplace(Compile(graph, options));
  last.executor->Run(last.inputs);
  OPKIT_CUDA_CHECK(cudaMemGetInfo(&free_after, &total));
  last.device_mb = (static_cast<double>(free_before) - static_cast<double>(free_after)) / 1e6;
  last.name = name;
  return last;
}

void RunModel(benchmark::State& state, const std::string& name, const Model& model, int64_t batch,
              bool on_cuda) {
  try {
    if (!std::ifstream(PathOf(model.path))) return state.SkipWithError("the model is not there");
    Prepared& prepared = Prepare(name, model, batch, on_cuda);
    for (auto _ : state) {
      for (const NamedTensor& output : prepared.executor->Run(prepared.inputs)) {
        if (IsHostAccessible(output.tensor.device().type)) continue;
        Tensor host;
        Copy(output.tensor, &host);
      }
    }
    const Plan& plan = prepared.executor->plan();
    state.counters["arena_MB"] = static_cast<double>(plan.memory().arena_bytes) / 1e6;
    if (!on_cuda) return;
    int nodes_on_cuda = 0;
    for (int node = 0; node < plan.graph().num_nodes(); ++node)
      nodes_on_cuda += plan.choice(node).kernel->device == DeviceType::kCUDA;
    state.counters["device_MB"] = prepared.device_mb;
    state.counters["nodes"] = plan.graph().num_nodes();
    state.counters["on_cuda"] = nodes_on_cuda;
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (CUDADeviceCount() == 0) {
    std::puts("not measured: no CUDA device");
    return 0;
  }
  for (const Model& model : kModels)
    for (const int64_t batch : {1, 16})
      for (const bool on_cuda : {true, false}) {
        const std::string name = StrCat(on_cuda ? "Cuda/" : "Cpu/", model.name, "/", batch);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [=](benchmark::State& state) { RunModel(state, name, model, batch, on_cuda); })
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
      }
  benchmark::RunSpecifiedBenchmarks();
}
