// The main function of every test executable: doctest's own, and `./dev test graph/memory` chooses
// the cases of a folder by OPKIT_TEST_SOURCE_FILES=*tests/graph/memory/*.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (const char* files = std::getenv("OPKIT_TEST_SOURCE_FILES"))
    context.addFilter("source-file", files);
  return context.run();
}

// Exceptions that several threads hold are counted inside libstdc++, where ThreadSanitizer does not
// see the order: whoever lets go of one last seems to race with those who have read it.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n"
         "race:std::logic_error::~logic_error\n"
         "race:opkit::*Error::~Error\n";
}

// TSan ends a forked child that starts threads unless told otherwise.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
