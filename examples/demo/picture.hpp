// Picture: rows of RGB bytes, read from and written to files.
#ifndef OPKIT_EXAMPLES_DEMO_PICTURE_HPP_
#define OPKIT_EXAMPLES_DEMO_PICTURE_HPP_

#include <cstdint>
#include <string>
#include <vector>

namespace demo {

struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height][width][3]
};

// Reads any kind of file that stb_image knows: PNG, JPEG, BMP, … Throws opkit::Error.
Picture ReadPicture(const std::string& path);
// Writes a PNG file. Throws opkit::Error.
void WritePicture(const Picture& picture, const std::string& path);
// Computes each pixel from the four around its position. Both extents must be positive.
Picture Resized(const Picture& picture, int width, int height);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_PICTURE_HPP_
