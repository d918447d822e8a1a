// TextReader: reads a line of text from a picture, with the recogniser of PP-OCRv4 (the package
// rapidocr_onnxruntime carries it as ch_PP-OCRv4_rec_infer.onnx).
#ifndef OPKIT_EXAMPLES_DEMO_READ_TEXT_HPP_
#define OPKIT_EXAMPLES_DEMO_READ_TEXT_HPP_

#include "model.hpp"
#include "picture.hpp"

namespace demo {

struct TextLine {
  std::string text;      // UTF-8
  float confidence = 0;  // mean of the characters' confidences
};

class TextReader {
 public:
  // Throws opkit::Error for a file that is not such a model.
  explicit TextReader(const std::string& model_file);
  // Reads a picture that shows one line of text and little else. Each width is planned once.
  TextLine Read(const Picture& picture);
  const opkit::Plan& plan() const { return model_->plan(); }

 private:
  std::vector<std::string> characters_;  // by class
  std::unique_ptr<Model> model_;
};

// Returns the graph's input, pixels uint8[1, 48, width, 3], in the picture's aspect ratio.
opkit::Tensor PixelsOf(const Picture& picture);

// Decodes float[1, steps, classes] greedily (Graves et al. 2006, section 3.2): takes the likeliest
// class of each step, merges runs of one class, and drops class 0, the blank. `characters` is
// indexed by class.
TextLine DecodeCtc(const opkit::Tensor& probabilities, const std::vector<std::string>& characters);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_READ_TEXT_HPP_
