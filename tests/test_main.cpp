// The main function of every test executable: doctest's own, and `./dev test graph/memory` chooses
// the cases of a folder by OPKIT_TEST_SOURCE_FILES=*tests/graph/memory/*.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "support/thread_sanitizer.hpp"

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (const char* files = std::getenv("OPKIT_TEST_SOURCE_FILES"))
    context.addFilter("source-file", files);
  return context.run();
}
