// Writes the pictures of the test as PNG files, and on standard output a line for each: file, seed,
// sentence. expected.py shows them to ONNX Runtime.
#include <cstdio>
#include <exception>

#include "render.hpp"
#include "sentences.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: demo_render_pictures FOLDER\n", stderr), 2;
  try {
    for (const auto& [text, seed] : demo::TestSentences()) {
      const std::string file = std::string(argv[1]) + "/" + std::to_string(seed) + ".png";
      demo::WritePicture(demo::RenderSentence(text, seed), file);
      std::printf("%s\t%llu\t%s\n", file.c_str(), static_cast<unsigned long long>(seed),
                  text.c_str());
    }
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
