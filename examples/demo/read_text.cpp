#include "read_text.hpp"

#include <algorithm>
#include <cmath>

namespace demo {
namespace {

using namespace opkit;

constexpr int kLineHeight = 48;         // height of a line in the recogniser's training,
constexpr int64_t kMinLineWidth = 320;  // and the least width of a picture
constexpr int kMaxLineWidth = 20000;    // the greatest width of a line, in pixels

// Reads the model's characters, one in each line; the blank comes before them and the space after
// them.
std::vector<std::string> CharactersOf(const OnnxModel& model) {
  std::vector<std::string> characters = {""};
  for (const auto& [key, text] : model.metadata) {
    if (key != "character") continue;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      characters.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (characters.size() == 1)
    Throw(ErrorCode::kInvalidArgument,
          "the model has no 'character' in its metadata: a list of the "
          "characters that its classes stand for");
  characters.push_back(" ");
  return characters;
}

// Returns the model's graph with pixels as its input: NormalizeImage converts them to the old
// input.
Graph WithPixels(const Graph& model) {
  Graph graph;
  graph.AddInput("pixels", DType::kUInt8, {1, kLineHeight, Sym("width"), 3});
  graph.AddNode(OperatorDef("NormalizeImage")
                    .Input("pixels")
                    .Output(model.inputs()[0].name)
                    .Arg("min_width", kMinLineWidth));
  for (const auto& constant : model.constants()) graph.AddConstant(constant.name, constant.value);
  for (const OperatorDef& node : model.nodes()) graph.AddNode(node);
  graph.AddOutput(model.outputs()[0]);
  return graph;
}

}  // namespace

Tensor PixelsOf(const Picture& picture) {
  if (picture.width <= 0 || picture.height <= 0)
    Throw(ErrorCode::kInvalidArgument, "the picture is empty");
  const double width = double{kLineHeight} * (double(picture.width) / picture.height);
  if (width > kMaxLineWidth)
    Throw(ErrorCode::kInvalidArgument, "the picture is no line of text: it is ", picture.width,
          " by ", picture.height, " pixels");
  // Rounds like the package: up if the line is padded, else down.
  const double rounded = width <= kMinLineWidth ? std::ceil(width) : std::floor(width);
  const Picture line = Resized(picture, static_cast<int>(rounded), kLineHeight);
  return Tensor::From<uint8_t>({1, line.height, line.width, 3}, line.rgb);
}

TextLine DecodeCtc(const Tensor& probabilities, const std::vector<std::string>& characters) {
  const Shape& shape = probabilities.shape();
  const auto classes = static_cast<int64_t>(characters.size());
  if (shape.rank() != 3 || shape[0] != 1 || shape[2] != classes)
    Throw(ErrorCode::kInvalidArgument, "expected probabilities of the shape [1, steps, ", classes,
          "], found ", shape);
  TextLine line;
  int letters = 0;
  const float* step = probabilities.data<float>();
  for (int64_t t = 0, before = 0; t < shape[1]; ++t, step += classes) {
    const int64_t best = std::max_element(step, step + classes) - step;
    if (best != before && best != 0) {
      line.text += characters[static_cast<size_t>(best)];
      line.confidence += step[best];
      ++letters;
    }
    before = best;
  }
  if (letters > 0) line.confidence /= static_cast<float>(letters);
  return line;
}

TextReader::TextReader(const std::string& model_file) {
  const OnnxModel model = ReadModel(model_file);
  characters_ = CharactersOf(model);
  model_ = std::make_unique<Model>(WithPixels(model.graph));
}

TextLine TextReader::Read(const Picture& picture) {
  return DecodeCtc(model_->Run(PixelsOf(picture)), characters_);
}

}  // namespace demo
