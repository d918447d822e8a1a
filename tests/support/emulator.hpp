// How a test starts a program of this build, where the build is for another processor too: CMake
// sets OPKIT_TEST_EMULATOR to what CMAKE_CROSSCOMPILING_EMULATOR says.
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
// Those that start the running program once more.
inline std::string CommandOfThisProgram() {
  return CommandOf(std::filesystem::read_symlink("/proc/self/exe").string());
}

#endif  // OPKIT_TESTS_SUPPORT_EMULATOR_HPP_
