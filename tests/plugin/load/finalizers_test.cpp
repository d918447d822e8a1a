// When OPKIT_LIBRARY_FINALIZE is called: exit_program.cpp ends in many ways.
#include "opkit/plugin/load/finalizers.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "support/emulator.hpp"

namespace finalizers_test {
namespace {

// The program's output, followed by its exit status unless that is 0.
std::string Ending(const std::string& how) {
  std::string out;
  FILE* program = popen((CommandOf(OPKIT_TEST_EXIT_PROGRAM) + " '" + how + "' 2>&1").c_str(), "r");
  REQUIRE(program);
  for (int c; (c = std::fgetc(program)) != EOF;) out += static_cast<char>(c);
  const int status = pclose(program);
  return status == 0 ? out : out + "status " + std::to_string(status) + "\n";
}

const std::string kFinalized = "first is finalized\nfirst is destroyed\n";
const std::string kProgram = "the program's object is destroyed\n";

}  // namespace

TEST_CASE("finalize ends a library's threads when the program ends, before static objects do") {
  CHECK(Ending("return") == kFinalized + kProgram);
  CHECK(Ending("return without a run") == kFinalized + kProgram);
  CHECK(Ending("another thread exits") == kFinalized + kProgram);
}

TEST_CASE("finalize is not called again at exit where the library was unloaded") {
  CHECK(Ending("unload") == kFinalized + kProgram);
  CHECK(Ending("a static object unloads") == kFinalized + kProgram);
}

TEST_CASE("the library that was loaded last is finalized first, and all before static objects") {
  CHECK(Ending("two libraries") ==
        "second is finalized\nfirst is finalized\n"
        "second is destroyed\nfirst is destroyed\n" +
            kProgram);
}

TEST_CASE("a forked child leaves finalizing to its parent") {
  CHECK(Ending("a forked child exits") ==
        "first is destroyed\n" + kProgram + "the child has ended\n" + kFinalized + kProgram);
}

TEST_CASE("a finalizer that calls exit does not wait for itself") {
  CHECK(Ending("the finalizer exits") == kFinalized + kProgram);
}

TEST_CASE("a finalizer's exception is reported by Unload, and logged when the program ends") {
  CHECK(Ending("the finalizer throws at unload") ==
        "first is finalized\nfirst is destroyed\nno room for the log\n" + kProgram);
  CHECK(Ending("the finalizer throws at exit") ==
        "first is finalized\n"
        "opkit error: libfinalizes.so: its finalize failed: no room for the log\n"
        "first is destroyed\n" +
            kProgram);
}

TEST_CASE("quick_exit finalizes nothing") { CHECK(Ending("quick_exit").empty()); }

}  // namespace finalizers_test
