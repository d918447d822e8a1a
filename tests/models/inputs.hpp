// Inputs and weights made by rule: expected.py makes the same ones, to the bit.
#ifndef OPKIT_TESTS_MODELS_INPUTS_HPP_
#define OPKIT_TESTS_MODELS_INPUTS_HPP_

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "opkit/graph/executor.hpp"

// Number i of those that `seed` draws from [0, 1), a multiple of 2^-24, by SplitMix64.
inline double Unit(int64_t i, uint64_t seed) {
  uint64_t z = static_cast<uint64_t>(i) + seed * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) / 16777216.0;
}

// The seed of a value's name.
inline uint64_t SeedOf(const std::string& name) {
  uint32_t seed = 0;
  for (const char byte : name) seed = 31 * seed + static_cast<unsigned char>(byte);
  return seed;
}

// As magika prepares a file: its first and its last 1024 bytes. The first row is noise, the others
// are of `text`.
inline std::vector<opkit::NamedTensor> FileBytes(int64_t rows, const std::string& text) {
  opkit::Tensor bytes({rows, 2048}, opkit::DType::kInt32);
  int32_t* out = bytes.mutable_data<int32_t>();
  for (int64_t i = 0; i < 2048; ++i) *out++ = static_cast<int32_t>(Unit(i, 1) * 256);
  for (int64_t row = 1; row < rows; ++row) {
    const auto begin = static_cast<size_t>(1024 * (row - 1));
    for (size_t i = 0; i < 1024; ++i) *out++ = static_cast<unsigned char>(text.at(begin + i));
    for (size_t i = 1024; i > 0; --i) *out++ = static_cast<unsigned char>(text.at(text.size() - i));
  }
  return {{"bytes", bytes}};
}

// Dark strokes of 3 by 6 pixels on light ground, in [-1, 1].
inline std::vector<opkit::NamedTensor> Picture(int64_t batch, int64_t height, int64_t width) {
  opkit::Tensor picture({batch, 3, height, width}, opkit::DType::kFloat32);
  float* out = picture.mutable_data<float>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t channel = 0; channel < 3; ++channel)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const double stroke = Unit((b * 64 + y / 6) * 512 + x / 3, 3);
          const double ink = Unit((b * height + y) * width + x, 2);
          *out++ = static_cast<float>((stroke < 0.3 ? -0.875 : 0.875) + (ink - 0.5) / 8);
        }
  return {{"x", picture}};
}

// A saw tooth under noise.
inline opkit::Tensor Sound(int64_t rows, int64_t samples) {
  opkit::Tensor sound({rows, samples}, opkit::DType::kFloat32);
  float* out = sound.mutable_data<float>();
  for (int64_t i = 0; i < sound.numel(); ++i)
    out[i] = static_cast<float>((static_cast<double>(i * 7 % 256) / 128 - 1) / 4 +
                                (Unit(i, 4) - 0.5) / 8);
  return sound;
}

inline opkit::Tensor VoiceState(int64_t batch) {
  opkit::Tensor state({2, batch, 128}, opkit::DType::kFloat32);
  float* out = state.mutable_data<float>();
  for (int64_t i = 0; i < state.numel(); ++i) out[i] = static_cast<float>(Unit(i, 5) - 0.5);
  return state;
}

// Frames of one voice, one after the other, with the state as two inputs.
inline std::vector<opkit::NamedTensor> Sequence(int64_t length) {
  const opkit::Tensor state = VoiceState(1);
  return {{"input", Sound(length, 576)}, {"h", state.Slice(0, 0, 1)}, {"c", state.Slice(0, 1, 2)}};
}

// A frame of each of several voices; without `rate_input` the model has no input for it.
inline std::vector<opkit::NamedTensor> Voices(int64_t batch, int64_t rate = 16000,
                                              bool rate_input = true) {
  std::vector<opkit::NamedTensor> inputs = {{"input", Sound(batch, rate == 16000 ? 576 : 288)},
                                            {"state", VoiceState(batch)}};
  if (rate_input) inputs.push_back({"sr", opkit::Tensor::Scalar(rate)});
  return inputs;
}

// The corpus's own input of the light models.
inline opkit::Tensor Ramp() {
  opkit::Tensor ramp({1, 3, 224, 224}, opkit::DType::kFloat32);
  const auto count = static_cast<double>(ramp.numel());
  for (int64_t i = 0; i < ramp.numel(); ++i)
    ramp.mutable_data<float>()[i] = static_cast<float>(static_cast<double>(i) / count);
  return ramp;
}

// Makes the input of a last Softmax or Sigmoid the graph's output, because it shows differences
// better.
inline opkit::Graph BeforeSquashing(opkit::Graph graph) {
  const std::string output = graph.outputs()[0];
  const opkit::OperatorDef& last = graph.node(graph.Producer(output));
  if (last.type() == "Softmax" || last.type() == "Sigmoid") {
    graph.RemoveOutput(output);
    graph.AddOutput(last.inputs()[0]);
  }
  return graph;
}

// A light model, its equal weights replaced by others: those of convolutions and matrices are
// scaled by their fan-in, the rest is in [0.5, 1).
inline opkit::Graph WithWeights(opkit::Graph graph) {
  std::vector<char> replaced(static_cast<size_t>(graph.num_nodes()), 0);
  std::vector<std::pair<std::string, opkit::Tensor>> constants;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const opkit::OperatorDef& def = graph.node(i);
    if (def.type() != "ConstantOfShape") continue;
    const opkit::Shape shape(opkit::Dims(graph.FindConstant(def.inputs()[0])->ToVector<int64_t>()));
    int64_t fan_in = 1;
    for (int axis = 1; axis < shape.rank(); ++axis) fan_in *= shape[axis];
    const double scale = std::sqrt(6.0 / static_cast<double>(fan_in));
    const uint64_t seed = SeedOf(def.outputs()[0]);
    opkit::Tensor weights(shape, opkit::DType::kFloat32);
    float* out = weights.mutable_data<float>();
    for (int64_t k = 0; k < weights.numel(); ++k) {
      const double value = Unit(k, seed);
      out[k] = static_cast<float>(shape.rank() > 1 ? (2 * value - 1) * scale : 0.5 + value / 2);
    }
    replaced[static_cast<size_t>(i)] = 1;
    constants.emplace_back(def.outputs()[0], std::move(weights));
  }
  graph.RemoveNodes(replaced);
  for (auto& [name, weights] : constants) graph.AddConstant(name, std::move(weights));
  return graph;
}

#endif  // OPKIT_TESTS_MODELS_INPUTS_HPP_
