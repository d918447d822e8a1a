#include "picture.hpp"

#include <algorithm>
#include <cmath>
#include <opkit/base/error.hpp>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include <stb/stb_image.h>
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace demo {
namespace {

// The positions of `extent` pixels among `source` pixels: pixel i is (1 - weight) of first and
// weight of second.
struct Between {
  int first, second;
  float weight;
};
std::vector<Between> Positions(int source, int extent) {
  std::vector<Between> positions;
  for (int i = 0; i < extent; ++i) {
    const double centre = (i + 0.5) * source / extent - 0.5;
    const double place = std::clamp(centre, 0.0, source - 1.0);
    const int first = static_cast<int>(place);
    positions.push_back(
        {first, std::min(first + 1, source - 1), static_cast<float>(place - first)});
  }
  return positions;
}

}  // namespace

Picture ReadPicture(const std::string& path) {
  Picture picture;
  int channels = 0;
  uint8_t* data = stbi_load(path.c_str(), &picture.width, &picture.height, &channels, 3);
  if (!data)
    opkit::Throw(opkit::ErrorCode::kInvalidArgument, "cannot read a picture from '", path,
                 "': ", stbi_failure_reason());
  picture.rgb.assign(data, data + size_t{3} * picture.width * picture.height);
  stbi_image_free(data);
  return picture;
}

void WritePicture(const Picture& picture, const std::string& path) {
  if (!stbi_write_png(path.c_str(), picture.width, picture.height, 3, picture.rgb.data(), 0))
    opkit::Throw(opkit::ErrorCode::kInvalidArgument, "cannot write '", path, "'");
}

Picture Resized(const Picture& picture, int width, int height) {
  Picture out{width, height, std::vector<uint8_t>(size_t{3} * width * height)};
  const std::vector<Between> columns = Positions(picture.width, width);
  uint8_t* pixel = out.rgb.data();
  for (const Between& row : Positions(picture.height, height)) {
    const uint8_t* top = picture.rgb.data() + size_t{3} * picture.width * row.first;
    const uint8_t* bottom = picture.rgb.data() + size_t{3} * picture.width * row.second;
    for (const Between& column : columns)
      for (int channel = 0; channel < 3; ++channel) {
        const int left = 3 * column.first + channel, right = 3 * column.second + channel;
        const float upper = top[left] + column.weight * (top[right] - top[left]);
        const float lower = bottom[left] + column.weight * (bottom[right] - bottom[left]);
        *pixel++ = static_cast<uint8_t>(upper + row.weight * (lower - upper) + 0.5f);
      }
  }
  return out;
}

}  // namespace demo
