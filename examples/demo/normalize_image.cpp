// NormalizeImage: an operator of the demo's own, in the spelling of MXNet's loadable operators. It
// is the first node of the recogniser's graph, so that the graph takes pixels as a file has them.
#include <opkit/op/function/function_operator.hpp>
#include <opkit/plugin/library.hpp>

#include "own_operators.hpp"

namespace {

using namespace opkit;

constexpr int64_t kChannels = 3;

OpStatus Forward(const AttrMap& attrs, std::span<const OpTensor> inputs,
                 std::span<OpTensor> outputs, OpResource& resource) {
  const OpTensor &pixels = inputs[0], &planes = outputs[0];
  const float mean = attrs.Get<float>("mean", 0.5f), deviation = attrs.Get("deviation", 0.5f);
  const int64_t height = pixels.dim(1), width = pixels.dim(2), padded = planes.dim(3);
  const uint8_t* from = pixels.data<uint8_t>();
  float* to = planes.data<float>();
  resource.parallel_for(pixels.dim(0) * kChannels * height, [=](int64_t row) {
    const int64_t picture = row / (kChannels * height), y = row % height;
    // the model has red as the last channel
    const int64_t channel = kChannels - 1 - row / height % kChannels;
    const uint8_t* in = from + (picture * height + y) * width * kChannels + channel;
    float* out = to + row * padded;
    for (int64_t x = 0; x < width; ++x)
      out[x] = (static_cast<float>(in[x * kChannels]) / 255 - mean) / deviation;
    std::fill(out + width, out + padded, 0.f);
  });
  return SUCCESS;
}

OpStatus ParseAttrs(const AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}

OpStatus InferType(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = DType::kUInt8;
  out[0] = DType::kFloat32;
  return SUCCESS;
}

OpStatus InferShape(const AttrMap& attrs, ShapeVectors& in, ShapeVectors& out) {
  if (in[0].empty()) return SUCCESS;  // the shape is not known yet
  if (in[0].size() != 4 || (in[0][3] >= 0 && in[0][3] != kChannels))
    return OpStatus::Failure("expected pixels of the shape [N, height, width, 3], found ", in[0]);
  const int64_t width = in[0][2];
  out[0] = {in[0][0], kChannels, in[0][1],
            width < 0 ? -1 : std::max(width, attrs.Get<int64_t>("min_width", 0))};
  return SUCCESS;
}

REGISTER_OP(NormalizeImage)
    .setForward(Forward, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .doc(
        "(x / 255 - mean) / deviation of uint8[N, H, W, 3] pixels, red first, as "
        "float32[N, 3, H, max(W, min_width)] planes, blue first, with zeros on the right. "
        "Attributes: mean and deviation (0.5), min_width (0).");

}  // namespace

namespace demo {

// In this unit, because it compiles the code for such operators anyway.
void LoadLibrary(const std::string& path) { opkit::Library::Load(path, {.allow_override = true}); }

}  // namespace demo
