// Saves the graph of an ONNX model as an ONNX model: resave MODEL OUTPUT. See saved_test.py.
#include <cstdio>

#include "opkit/interop/onnx.hpp"
#include "opkit/interop/onnx_writer.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    opkit::SaveOnnx(opkit::LoadOnnx(argv[1]), argv[2]);
  } catch (const opkit::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
