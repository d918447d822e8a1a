// Draws the same pixels on every machine: the compiler must not contract a * b + c (see
// CMakeLists.txt), and the code calls only those mathematical functions whose results IEEE 754
// fixes.
#include "render.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <opkit/interop/mapped_file.hpp>

#define STB_TRUETYPE_IMPLEMENTATION
#define STBTT_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_truetype.h>
#pragma GCC diagnostic pop

namespace demo {
namespace {

using namespace opkit;

// SplitMix64 (Steele, Lea, Flood 2014): the distributions of <random> differ between libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  float Uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(Bits() >> 40) * 0x1p-24f);
  }
  // Returns a number of mean 0 and deviation 1: the sum of four uniform numbers is close enough.
  float Normal() {
    float sum = 0;
    for (uint64_t bits = Bits(), i = 0; i < 4; ++i, bits >>= 16)
      sum += static_cast<float>(bits & 0xffff) * 0x1p-16f;
    return (sum - 2) * 1.7320508f;
  }
  template <class T, size_t kSize>
  T Choose(const T (&items)[kSize]) {
    return items[Bits() % kSize];
  }

 private:
  uint64_t state_;
};

// An image with one number for each pixel.
struct Plane {
  int width = 0, height = 0;
  std::vector<float> values = {};

  Plane(int w, int h) : width(w), height(h), values(static_cast<size_t>(w) * h) {}
  float& at(int x, int y) { return values[static_cast<size_t>(y) * width + x]; }
  // 0 outside.
  float at(int x, int y) const {
    const bool inside = x >= 0 && y >= 0 && x < width && y < height;
    return inside ? values[static_cast<size_t>(y) * width + x] : 0;
  }
  float Between(float x, float y) const {
    const float left = std::floor(x), top = std::floor(y);
    const int i = static_cast<int>(left), j = static_cast<int>(top);
    const float u = x - left, v = y - top;
    return (at(i, j) * (1 - u) + at(i + 1, j) * u) * (1 - v) +
           (at(i, j + 1) * (1 - u) + at(i + 1, j + 1) * u) * v;
  }
};

constexpr float kTextHeight = 60;  // pixels from the highest to the lowest point of the letters

// Draws a straight line of text with little room around it: the share of ink in each pixel.
Plane Write(const std::string& text, const char* font_file) {
  const Storage file = MapFile(std::string("/usr/share/fonts/truetype/dejavu/") + font_file);
  const auto* bytes = reinterpret_cast<const unsigned char*>(BytesOf(file).data());
  stbtt_fontinfo font;
  if (!stbtt_InitFont(&font, bytes, 0))
    Throw(ErrorCode::kInvalidArgument, "'", font_file, "' is no TrueType font");
  const float scale = stbtt_ScaleForPixelHeight(&font, kTextHeight);
  int ascent, descent, gap;
  stbtt_GetFontVMetrics(&font, &ascent, &descent, &gap);

  std::vector<float> places;  // positions of the letters' origins
  float end = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    int advance, bearing;
    stbtt_GetCodepointHMetrics(&font, text[i], &advance, &bearing);
    places.push_back(end);
    const int kerning =
        i + 1 < text.size() ? stbtt_GetCodepointKernAdvance(&font, text[i], text[i + 1]) : 0;
    end += scale * static_cast<float>(advance + kerning);
  }

  constexpr int kMargin = 8;
  Plane ink(static_cast<int>(end) + 2 * kMargin, static_cast<int>(kTextHeight) + 2 * kMargin);
  const int baseline = kMargin + static_cast<int>(scale * static_cast<float>(ascent));
  for (size_t i = 0; i < text.size(); ++i) {
    const float place = places[i] + kMargin;
    const int column = static_cast<int>(place);
    int width = 0, height = 0, left = 0, top = 0;  // a space has no pixels
    unsigned char* letter =
        stbtt_GetCodepointBitmapSubpixel(&font, scale, scale, place - static_cast<float>(column), 0,
                                         text[i], &width, &height, &left, &top);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const int to_x = column + left + x, to_y = baseline + top + y;
        if (to_x < 0 || to_y < 0 || to_x >= ink.width || to_y >= ink.height) continue;
        float& value = ink.at(to_x, to_y);
        value = std::max(value, static_cast<float>(letter[y * width + x]) / 255);
      }
    stbtt_FreeBitmap(letter, nullptr);
  }
  return ink;
}

// Slants the picture: the line rises or falls, the letters lean.
Plane Slant(const Plane& ink, float rise, float lean) {
  const float drop = rise * static_cast<float>(ink.width);
  const float shift = lean * static_cast<float>(ink.height);
  Plane out(ink.width + static_cast<int>(std::fabs(shift)),
            ink.height + static_cast<int>(std::fabs(drop)));
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      const float from_y =
          static_cast<float>(y) - std::max(drop, 0.f) + rise * static_cast<float>(x);
      const float from_x = static_cast<float>(x) - std::max(shift, 0.f) + lean * from_y;
      out.at(x, y) = ink.Between(from_x, from_y);
    }
  return out;
}

// Blurs like a lens out of focus: averages three pixels along each axis, `times` times.
void Blur(Plane& plane, int times) {
  const auto average = [&](int dx, int dy) {
    const Plane before = plane;
    for (int y = 0; y < plane.height; ++y)
      for (int x = 0; x < plane.width; ++x)
        plane.at(x, y) =
            (before.at(x - dx, y - dy) + before.at(x, y) + before.at(x + dx, y + dy)) / 3;
  };
  for (int i = 0; i < times; ++i) {
    average(1, 0);
    average(0, 1);
  }
}

}  // namespace

std::vector<std::string> MakeSentences(uint64_t seed, int count) {
  constexpr const char* kOpenings[] = {"The", "Every", "One", "No", "Some", "Each"};
  constexpr const char* kQualities[] = {"small", "quick",  "blocked", "frozen", "sparse",
                                        "heavy", "hidden", "dense",   "typed",  "shared"};
  constexpr const char* kThings[] = {"kernel", "tensor", "graph",  "stream",   "buffer",   "layout",
                                     "thread", "model",  "device", "operator", "schedule", "plan"};
  constexpr const char* kDeeds[] = {"waits for", "follows",  "writes to", "reads from",
                                    "replaces",  "measures", "joins",     "knows"};
  constexpr const char* kEndings[] = {".", "!", "?", " at once.", ", again.", " (see below)."};
  Random random(seed);
  std::vector<std::string> sentences;
  for (int i = 0; i < count; ++i) {
    // one draw in each statement, so that their order is fixed
    std::string text = random.Choose(kOpenings);
    const auto add = [&](const char* before, const std::string& word) { text += before + word; };
    add(" ", random.Choose(kQualities));
    add(" ", random.Choose(kThings));
    add(" ", random.Choose(kDeeds));
    add(" ", std::to_string(2 + random.Bits() % 997));
    add(" ", random.Choose(kThings));
    add("s", random.Choose(kEndings));
    sentences.push_back(std::move(text));
  }
  return sentences;
}

Picture RenderSentence(const std::string& text, uint64_t seed) {
  constexpr const char* kFonts[] = {"DejaVuSans.ttf",     "DejaVuSans-Bold.ttf",
                                    "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf",
                                    "DejaVuSerif.ttf",    "DejaVuSerif-Bold.ttf"};
  for (const char c : text)
    if (c < ' ' || c > '~')
      Throw(ErrorCode::kInvalidArgument, "only printable ASCII can be rendered, not \"", text,
            "\"");
  if (text.empty()) Throw(ErrorCode::kInvalidArgument, "there is no text to render");
  Random random(seed);
  Plane ink = Write(text, random.Choose(kFonts));
  // The ends differ by less than half the line's height, so that it remains a line.
  const float rise = random.Uniform(-0.4f, 0.4f) * kTextHeight / static_cast<float>(ink.width);
  ink = Slant(ink, rise, random.Uniform(-0.25f, 0.25f));
  Blur(ink, 2 + static_cast<int>(random.Bits() % 20));

  float paper[3], pen[3];
  const float white = random.Uniform(190, 235), dark = random.Uniform(20, 70);
  for (int channel = 0; channel < 3; ++channel) {
    paper[channel] = white + random.Uniform(-10, 10);
    pen[channel] = dark + random.Uniform(0, 30);
  }
  const float across = random.Uniform(-0.35f, 0.35f), down = random.Uniform(-0.2f, 0.2f);
  const float spot = random.Uniform(0, 1), glow = random.Uniform(0, 0.2f);
  const float noise = random.Uniform(5, 45);
  Picture picture{ink.width, ink.height, {}};
  for (int y = 0; y < ink.height; ++y)
    for (int x = 0; x < ink.width; ++x) {
      const float u = static_cast<float>(x) / static_cast<float>(ink.width);
      const float v = static_cast<float>(y) / static_cast<float>(ink.height);
      const float far = (u - spot) * (u - spot);  // squared distance from a lamp
      const float light = 0.85f + across * (u - 0.5f) + down * (v - 0.5f) + glow / (1 + 20 * far);
      const float covered = ink.at(x, y);
      for (int channel = 0; channel < 3; ++channel) {
        const float seen = paper[channel] * (1 - covered) + pen[channel] * covered;
        const float value = seen * light + noise * random.Normal();
        picture.rgb.push_back(static_cast<uint8_t>(std::clamp(value + 0.5f, 0.f, 255.f)));
      }
    }
  return picture;
}

}  // namespace demo
