// Pictures: rendered by rule, resized, written and read back.
#include "render.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "support/error_of.hpp"

namespace demo { namespace {

// The mean over the channels of all pixels.
double Mean(const Picture& picture) {
  double sum = 0;
  for (const uint8_t value : picture.rgb) sum += value;
  return sum / static_cast<double>(picture.rgb.size());
}

TEST_CASE("sentences follow from their seed") {
  const auto sentences = MakeSentences(1, 50);
  REQUIRE(sentences.size() == 50);
  CHECK(MakeSentences(1, 50) == sentences);
  CHECK(MakeSentences(2, 50) != sentences);
  CHECK(std::set<std::string>(sentences.begin(), sentences.end()).size() > 45);
  for (const std::string& text : sentences) {
    CAPTURE(text);
    CHECK(text.size() > 20);
    CHECK(std::string(".!?)").find(text.back()) != std::string::npos);
    for (const char c : text) CHECK((c >= ' ' && c <= '~'));
  }
}

TEST_CASE("a picture follows from its text and seed, and shows dark ink on light paper") {
  const Picture picture = RenderSentence("One line of text", 7);
  CHECK(picture.rgb.size() == size_t{3} * picture.width * picture.height);
  CHECK(picture.width > 5 * picture.height);
  CHECK(RenderSentence("One line of text", 7).rgb == picture.rgb);
  CHECK(RenderSentence("One line of text", 8).rgb != picture.rgb);
  CHECK(RenderSentence("One lime of text", 7).rgb != picture.rgb);
  const Picture longer = RenderSentence("One line of text, and more of it", 7);
  CHECK(longer.width > picture.width);
  CHECK(Mean(RenderSentence("MMMM", 3)) < Mean(RenderSentence("....", 3)) - 10);
}

TEST_CASE("text that cannot be rendered is an error") {
  CHECK(ErrorOf([] { RenderSentence("", 1); }).message() == "there is no text to render");
  CHECK(Contains(ErrorOf([] { RenderSentence("na\xc3\xafve", 1); }).message(),
                 "only printable ASCII can be rendered"));
}

TEST_CASE("resizing takes each pixel from those around it") {
  Picture picture{2, 1, {0, 100, 200, 100, 200, 0}};
  CHECK(Resized(picture, 2, 1).rgb == picture.rgb);
  // Centres at -0.25, 0.25, 0.75 and 1.25 of the two pixels; outside is the edge.
  CHECK(Resized(picture, 4, 1).rgb ==
        std::vector<uint8_t>{0, 100, 200, 25, 125, 150, 75, 175, 50, 100, 200, 0});
  CHECK(Resized(picture, 1, 3).rgb ==
        std::vector<uint8_t>{50, 150, 100, 50, 150, 100, 50, 150, 100});
  picture = {1, 2, {0, 0, 0, 90, 91, 92}};
  CHECK(Resized(picture, 1, 1).rgb == std::vector<uint8_t>{45, 46, 46});
}

TEST_CASE("a picture is the same after it was written and read") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("opkit_demo_" + std::to_string(getpid()) + ".png");
  const Picture picture = RenderSentence("There and back", 5);
  WritePicture(picture, path);
  const Picture back = ReadPicture(path);
  std::filesystem::remove(path);
  CHECK(back.width == picture.width);
  CHECK(back.height == picture.height);
  CHECK(back.rgb == picture.rgb);
  CHECK(Contains(ErrorOf([&] { ReadPicture(path); }).message(),
                 "cannot read a picture from '" + path + "'"));
  CHECK(ErrorOf([&] { WritePicture(picture, "/nowhere/at/all.png"); }).message() ==
        "cannot write '/nowhere/at/all.png'");
}

}  // namespace
}  // namespace demo
