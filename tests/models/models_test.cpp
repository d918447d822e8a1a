// The real models against ONNX Runtime, on inputs made by rule.
#include <doctest/doctest.h>

#include <filesystem>

#include "expected.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/interop/onnx_writer.hpp"
#include "opkit/op/check/check_data.hpp"
#include "support/backends.hpp"
#include "support/sanitizers.hpp"

using namespace opkit;

namespace {

// Takes every node with a probability that the seed chooses.
void TakeByChance(const PartitionView& view, PartitionAnswer& answer,
                  const PartitionArguments& options) {
  const uint64_t seed = std::stoull(options.at(0).second);
  const double probability = 0.3 + 0.6 * Unit(0, seed);
  for (int node = 0; node < view.num_nodes(); ++node)
    if (Unit(1 + node, seed) < probability) answer.Take(node);
}
REGISTER_PARTITIONER(models_by_chance).setSupportedOps(TakeByChance);

struct Case {
  std::string name;
  std::vector<NamedTensor> inputs;
};

std::string PathOf(const std::string& model) { return DataFolder() + "/" + model; }

// Every case through one executor, so that each comes after others of other shapes.
void CheckOn(const Backend& backend, int threads, const Graph& graph,
             const std::vector<Case>& cases) {
  const PreferredBackend preferred(backend);
  Executor executor(Compile(graph, preferred.options(threads)));
  for (const auto& [name, inputs] : cases) {
    CAPTURE(backend.Name());
    CAPTURE(threads);
    CAPTURE(name);
    const auto& expected = ExpectedOutputs().at(name);
    const NamedTensors outputs = executor.Run(inputs);
    REQUIRE(outputs.size() == expected.size());
    size_t i = 0;
    for (const auto& [output, tensor] : outputs) {
      CHECK(output == expected[i].name);
      CHECK(ModelDifference(OnHost(tensor), expected[i]) == "");
      ++i;
    }
  }
}
void CheckEverywhere(const Graph& graph, const std::vector<Case>& cases) {
#ifdef OPKIT_CUDA_EMULATION  // one thread of the host computes the kernels, so a run takes seconds
  CheckOn({DeviceType::kCUDA, "cuda"}, 1, graph, cases);
#else
  for (const Backend& backend : BackendsOfModels()) {
    CheckOn(backend, 1, graph, cases);
    if (!backend.IsReference()) CheckOn(backend, 2, graph, cases);
  }
#endif
}

std::string Inputs(const Graph& graph) {
  std::string out;
  for (const auto& input : graph.inputs())
    out += (out.empty() ? "" : ", ") + input.name + " " + ToString(input.info);
  return out;
}

}  // namespace

TEST_CASE("magika recognizes the kind of a file") {
  const Graph graph = LoadOnnx(PathOf("magika-1.0.3/magika/models/standard_v3_3/model.onnx"));
  CHECK(Inputs(graph) == "bytes int32[unk__214, 2048]");
  CHECK(graph.outputs() == std::vector<std::string>{"target_label"});
  const std::string license = ReadAll(OPKIT_LICENSE);
  CheckEverywhere(graph,
                  {{"magika_1", FileBytes(1, license)}, {"magika_3", FileBytes(3, license)}});
}

TEST_CASE("the model of rapidocr reads lines of any width") {
  const OnnxModel model = LoadOnnxModel(
      PathOf("rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"));
  CHECK(Inputs(model.graph) == "x float32[p2o.DynamicDimension.0, 3, ?, p2o.DynamicDimension.1]");
  REQUIRE(model.metadata.size() == 1);
  CHECK(model.metadata[0].first == "character");
  CheckEverywhere(model.graph,
                  {{"rec_100", Picture(1, 48, 100)}, {"rec_batch_2", Picture(2, 48, 100)}});
#if !defined(OPKIT_TESTS_ADDRESS_SANITIZER) && !defined(OPKIT_CUDA_EMULATION)  // take minutes
  CheckEverywhere(model.graph,
                  {{"rec_320", Picture(1, 48, 320)}, {"rec_501", Picture(1, 48, 501)}});
#endif
}

TEST_CASE("the model of rapidocr recognizes a line that is upside down") {
  const Graph graph =
      LoadOnnx(PathOf("rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/"
                      "ch_ppocr_mobile_v2.0_cls_infer.onnx"));
  CHECK(Inputs(graph) == "x float32[?, 3, ?, ?]");
  CheckEverywhere(graph, {{"cls_1", Picture(1, 48, 192)}, {"cls_2", Picture(2, 48, 192)}});
}

TEST_CASE("the model of rapidocr finds lines of text") {
  const Graph graph = LoadOnnx(
      PathOf("rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"));
  CheckEverywhere(BeforeSquashing(graph),
                  {{"det_64x160", Picture(1, 64, 160)}, {"det_96x96", Picture(1, 96, 96)}});
}

TEST_CASE("silero recognizes speech in a sequence of frames") {
  const Graph graph =
      LoadOnnx(PathOf("silero_vad-6.2.3/silero_vad/data/silero_vad_16k_sequence.onnx"));
  CHECK(Inputs(graph) ==
        "input float32[sequence_length, 576], h float32[1, 1, 128], c float32[1, 1, 128]");
  CheckEverywhere(
      graph, {{"silero_1", Sequence(1)}, {"silero_7", Sequence(7)}, {"silero_40", Sequence(40)}});
}

TEST_CASE("silero chooses a branch by the sample rate") {
  for (const std::string name : {"silero_vad", "silero_vad_op18_ifless"})
    CheckEverywhere(LoadOnnx(PathOf("silero_vad-6.2.3/silero_vad/data/" + name + ".onnx")),
                    {{name + "_1_16000", Voices(1)},
                     {name + "_3_16000", Voices(3)},
                     {name + "_2_8000", Voices(2, 8000)}});
}

TEST_CASE("silero recognizes speech in frames of several voices") {
  const std::string folder = PathOf("silero_vad-6.2.3/silero_vad/data/");
  CheckEverywhere(LoadOnnx(folder + "silero_vad_16k_op15.onnx"),
                  {{"silero_vad_16k_op15_1", Voices(1)}, {"silero_vad_16k_op15_3", Voices(3)}});
  CheckEverywhere(LoadOnnx(folder + "silero_vad_half.onnx"),
                  {{"silero_vad_half_1", Voices(1, 16000, false)},
                   {"silero_vad_half_3", Voices(3, 16000, false)}});
  CheckEverywhere(LoadOnnx(folder + "silero_vad_openvino_16k.onnx"),
                  {{"silero_vad_openvino_16k", Voices(1, 16000, false)}});
}

TEST_CASE("every model is the same graph after it was saved and loaded") {
  std::vector<std::string> paths;
  for (const std::string wheel : {"magika-1.0.3", "rapidocr_onnxruntime-1.4.4", "silero_vad-6.2.3"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(PathOf(wheel)))
      if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  CHECK(paths.size() == 10);
  OnnxOptions options;
  options.allow_unknown_operators = true;  // some models have operators that opkit lacks
  for (const std::string& path : paths) {
    CAPTURE(path);
    const Graph graph = LoadOnnx(path, options);
    const std::string saved = ToOnnx(graph);
    CHECK(SameGraph(ParseOnnxModel(saved, options).graph, graph));
    CHECK(ToOnnx(graph) == saved);
  }
}

// By the plain kernels, which compute a value in one way whatever the nodes around it are.
TEST_CASE("random partitioners keep the outputs of every model to the bit") {
  const PreferredBackend plain(Backend{});
  const std::string rapidocr = "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/";
  const std::string silero = "silero_vad-6.2.3/silero_vad/data/";
  const std::vector<Case> models = {
      {"magika-1.0.3/magika/models/standard_v3_3/model.onnx", FileBytes(1, "")},
      {rapidocr + "ch_PP-OCRv4_rec_infer.onnx", Picture(1, 48, 16)},
      {rapidocr + "ch_ppocr_mobile_v2.0_cls_infer.onnx", Picture(1, 48, 48)},
      {rapidocr + "ch_PP-OCRv4_det_infer.onnx", Picture(1, 32, 32)},
      {silero + "silero_vad_16k_sequence.onnx", Sequence(2)},
      {silero + "silero_vad.onnx", Voices(1)},
      {silero + "silero_vad_op18_ifless.onnx", Voices(1)},
      {silero + "silero_vad_16k_op15.onnx", Voices(1)},
      {silero + "silero_vad_half.onnx", Voices(1, 16000, false)},
      {silero + "silero_vad_openvino_16k.onnx", Voices(1, 16000, false)}};
  const uint64_t seeds = (Rounds(10u) + 1) / 2;
  size_t subgraphs = 0;  // a model may be an If and little else
  for (const auto& [name, inputs] : models) {
    CAPTURE(name);
    const Graph graph = LoadOnnx(PathOf(name));
    const NamedTensors expected = Executor(Compile(graph, {.threads = 1})).Run(inputs);
    for (uint64_t seed = 1; seed <= seeds; ++seed)
      for (const int threads : {1, 4}) {
        CAPTURE(seed);
        CAPTURE(threads);
        const PartitionerRequest by_chance("models_by_chance", {{"seed", std::to_string(seed)}});
        Executor executor(Compile(graph, {.threads = threads, .partitioners = {by_chance}}));
        subgraphs += executor.plan().partition_report().subgraphs.size();
        const NamedTensors found = executor.Run(inputs);
        for (const NamedTensor& output : expected)
          CHECK(detail::SameBytes(output.tensor, found.Get(output.name)));
      }
  }
  CHECK(subgraphs > 100 * seeds);
}
