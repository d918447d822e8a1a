#pragma once
#include <string>
#include <vector>

inline std::vector<std::string>& RegisteredNames() {
  static std::vector<std::string> names;
  return names;
}
