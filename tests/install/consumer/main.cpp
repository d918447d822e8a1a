#include <opkit/opkit.hpp>

#include <cstdio>

#include "operators.hpp"

int main() {
  const std::string found = opkit::StrCat(RegisteredNames());
  std::printf("opkit %s, operators %s\n", OPKIT_VERSION_STRING, found.c_str());
  return found == "[Scale]" ? 0 : 1;
}
