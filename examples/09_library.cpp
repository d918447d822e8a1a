// Loads an operator from a shared library, examples/library/first.cc, runs it, misuses it and
// unloads the library.
//   g++ -std=c++20 -O2 -Iinclude examples/09_library.cpp -o use && ./use
#include <cstdio>
#include <opkit/plugin.hpp>

using namespace opkit;

int main(int argc, char** argv) {
  try {
    Library lib = Library::Load(argc > 1 ? argv[1] : "./libfirst.so");

    const Tensor x = Tensor::From<float>({3}, {-10, 0, 10});
    const std::vector<Tensor> y = Invoke("my_leaky_relu", {x}, {{"slope", 0.5f}});
    for (float value : y[0].ToVector<float>()) std::printf("%g ", value);
    std::printf("\n");

    try {
      Invoke("my_leaky_relu", {x}, {{"slope", "steep"}});
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
    }
    std::printf("%s: %s\n", lib.path().c_str(), ToString(lib.Unload()).c_str());
    return y[0].ToVector<float>() == std::vector<float>{-5, 0, 10} ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
