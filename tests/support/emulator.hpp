// Starts programs of this build from a test, also if the build is for another processor: CMake sets
// OPKIT_TEST_EMULATOR to CMAKE_CROSSCOMPILING_EMULATOR.
#ifndef OPKIT_TESTS_SUPPORT_EMULATOR_HPP_
#define OPKIT_TESTS_SUPPORT_EMULATOR_HPP_

#include <cstdlib>
#include <filesystem>
#include <string>

// The words of a shell that start `program`.
inline std::string CommandOf(const std::string& program) {
  const char* const emulator = std::getenv("OPKIT_TEST_EMULATOR");
  return (emulator ? std::string(emulator) + " '" : "'") + program + "'";
}
// The words of a shell that start the running program once more.
inline std::string CommandOfThisProgram() {
  return CommandOf(std::filesystem::read_symlink("/proc/self/exe").string());
}

#endif  // OPKIT_TESTS_SUPPORT_EMULATOR_HPP_
