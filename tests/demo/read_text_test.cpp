// Text read from pictures: the same as ONNX Runtime reads from the same pixels.
#include "read_text.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <opkit/op/invoke.hpp>

#include "expected.hpp"
#include "sentences.hpp"
#include "support/error_of.hpp"

namespace demo { namespace {

using namespace opkit;

TEST_CASE("NormalizeImage makes planes of pixels, blue first, with zeros on the right") {
  // One picture of 1 by 2 pixels: red, green, blue.
  const Tensor pixels = Tensor::From<uint8_t>({1, 1, 2, 3}, {0, 51, 102, 255, 204, 153});
  const auto run = [&](const Arguments& arguments) {
    return Invoke("NormalizeImage", {pixels}, arguments)[0];
  };
  const auto check = [](const Tensor& planes, const Shape& shape, std::vector<double> values) {
    CHECK(planes.shape() == shape);
    const std::vector<float> found = planes.ToVector<float>();
    REQUIRE(found.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) CHECK(found[i] == doctest::Approx(values[i]));
  };
  check(run({}), {1, 3, 1, 2}, {-0.2, 0.2, -0.6, 0.6, -1, 1});
  check(run({{"min_width", 3}}), {1, 3, 1, 3}, {-0.2, 0.2, 0, -0.6, 0.6, 0, -1, 1, 0});
  check(run({{"mean", 0.f}, {"deviation", 1.f}}), {1, 3, 1, 2}, {0.4, 0.6, 0.2, 0.8, 0, 1});
  CHECK(Contains(ErrorOf([] {
                   Invoke("NormalizeImage", {Tensor::From<uint8_t>({1, 1, 2, 1}, {1, 2})});
                 }).what(),
                 "expected pixels of the shape [N, height, width, 3], found"));
  const Tensor two =
      Tensor::From<uint8_t>({2, 2, 1, 3}, {0, 0, 51, 0, 0, 102, 0, 0, 153, 0, 0, 204});
  check(Invoke("NormalizeImage", {two}, {{"mean", 0.f}, {"deviation", 1.f}})[0], {2, 3, 2, 1},
        {0.2, 0.4, 0, 0, 0, 0, 0.6, 0.8, 0, 0, 0, 0});
}

TEST_CASE("a run of one class is one character; the blank is none, and separates equal ones") {
  const std::vector<std::string> characters = {"", "a", "ß", " "};
  const auto decode = [&](const std::vector<int>& classes) {
    std::vector<float> probabilities;
    for (size_t t = 0; t < classes.size(); ++t)
      for (int c = 0; c < 4; ++c)
        probabilities.push_back(c == classes[t] ? 0.5f + static_cast<float>(t) / 16 : 0.1f);
    return DecodeCtc(
        Tensor::From<float>({1, static_cast<int64_t>(classes.size()), 4}, probabilities),
        characters);
  };
  CHECK(decode({1, 1, 2, 3, 1}).text == "aß a");
  CHECK(decode({1, 0, 1, 1, 0, 0}).text == "aa");
  CHECK(decode({0, 1, 2, 2, 0}).confidence == doctest::Approx((0.5625 + 0.625) / 2));
  CHECK(decode({0, 0}).text.empty());
  CHECK(decode({0, 0}).confidence == 0);
  CHECK(decode({}).text.empty());
  CHECK(Contains(ErrorOf([&] {
                   DecodeCtc(Tensor::From<float>({1, 1, 3}, {0, 0, 1}), characters);
                 }).message(),
                 "expected probabilities of the shape [1, steps, 4], found [1, 1, 3]"));
}

TEST_CASE("a line is 48 pixels high, and its width follows from its picture") {
  const auto shape = [](int width, int height) {
    return PixelsOf({width, height, std::vector<uint8_t>(size_t{3} * width * height)}).shape();
  };
  CHECK(shape(100, 48) == Shape({1, 48, 100, 3}));
  CHECK(shape(100, 24) == Shape({1, 48, 200, 3}));
  CHECK(shape(101, 95) == Shape({1, 48, 52, 3}));   // 51.03: up where the model sees 320 anyway,
  CHECK(shape(700, 95) == Shape({1, 48, 353, 3}));  // 353.7: and else down
  CHECK(shape(1, 500) == Shape({1, 48, 1, 3}));
  CHECK(ErrorOf([] { PixelsOf({}); }).message() == "the picture is empty");
  CHECK(ErrorOf([&] { shape(30000, 1); }).message() ==
        "the picture is no line of text: it is 30000 by 1 pixels");
}

// How many characters must be changed, left out or put in to make one text of the other.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

TEST_CASE("twenty sentences are read as ONNX Runtime reads them") {
  const auto sentences = TestSentences();
  const auto& expected = Expected()["pictures"];
  REQUIRE(sentences.size() == 20);
  REQUIRE(expected.size() == 20);
  TextReader reader(DataFile(
      "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"));
  size_t letters = 0, wrong = 0, wrong_there = 0, others = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const std::string& truth = sentences[i].text;
    REQUIRE(truth == expected[i]["text"].get<std::string>());
    const Picture picture = RenderSentence(truth, sentences[i].seed);
    const std::string read = reader.Read(picture).text, there = expected[i]["read"];
    letters += truth.size();
    wrong += Distance(truth, read);
    wrong_there += Distance(truth, there);
    const bool same_pixels = Fnv({reinterpret_cast<const char*>(picture.rgb.data()),
                                  picture.rgb.size()}) == expected[i]["hash"].get<std::string>();
    others += !same_pixels;
    if (same_pixels) CHECK(read == there);
  }
  if (others > 0)
    MESSAGE(
        others,
        " pictures are not those that ONNX Runtime read: the DejaVu fonts or stb_truetype "
        "of this machine are another version (tests/demo/expected.py records anew). Compared is "
        "how many characters are right");
  const auto accuracy = [&](size_t errors) { return 1 - double(errors) / double(letters); };
  MESSAGE("of ", letters, " characters ", 100 * accuracy(wrong), " % are right, with ONNX Runtime ",
          100 * accuracy(wrong_there), " %");
  CHECK(accuracy(wrong_there) > 0.95);
  CHECK(accuracy(wrong) >= accuracy(wrong_there) - (others > 0 ? 0.01 : 0));
}

TEST_CASE("the recogniser's graph begins with the demo's own operator") {
  TextReader reader(DataFile(
      "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"));
  // Narrower than the model reads; what it makes of the padding may be a space.
  CHECK(Contains(reader.Read(RenderSentence("Narrow", 1)).text, "Narrow"));
  const Plan& plan = reader.plan();
  REQUIRE(plan.graph().inputs().size() == 1);
  CHECK(plan.graph().inputs()[0].name == "pixels");
  CHECK(plan.graph().node(0).type() == "NormalizeImage");
  CHECK(plan.type(plan.graph().node(0).outputs()[0]).shape == SymbolicShape({1, 3, 48, 320}));
  CHECK(Contains(plan.choice(0).kernel->Place(), "normalize_image.cpp"));
}

TEST_CASE("a model that reads no text is an error") {
  CHECK(Contains(ErrorOf([] {
                   TextReader(
                       DataFile("rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/"
                                "ch_ppocr_mobile_v2.0_cls_infer.onnx"));
                 }).message(),
                 "the model has no 'character' in its metadata"));
  CHECK(Contains(ErrorOf([] { TextReader("/nowhere.onnx"); }).what(), "/nowhere.onnx"));
}

}  // namespace
}  // namespace demo
