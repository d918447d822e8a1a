// Reads the results that expected.py recorded, and computes the same hash of a result as
// expected.py.
#ifndef OPKIT_TESTS_DEMO_EXPECTED_HPP_
#define OPKIT_TESTS_DEMO_EXPECTED_HPP_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace demo {

inline const nlohmann::json& Expected() {
  static const nlohmann::json expected =
      nlohmann::json::parse(std::ifstream(OPKIT_DEMO_TESTS "/expected.json"));
  return expected;
}

// The 64-bit hash FNV-1a, as text.
inline std::string Fnv(std::string_view bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Where data/fetch.py put a file.
inline std::string DataFile(const std::string& path) {
  const char* data = std::getenv("OPKIT_DATA_DIR");
  return (data && *data ? data : OPKIT_DATA_FOLDER) + ("/" + path);
}

}  // namespace demo

#endif  // OPKIT_TESTS_DEMO_EXPECTED_HPP_
