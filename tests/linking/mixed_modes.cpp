// A unit that consumes the toolkit in one way; mixed_modes_other.cpp, linked to it, does in the
// other.
#include <cstdio>
#include <string>

#include "opkit/op/registration.hpp"

int main() {
  for (const auto look_up : {
           +[] { opkit::OpRegistry::Global().GetSchema("Anything"); },
           +[] { static_cast<void>(opkit::OpRegistry::Global().FindSchema("Anything")); },
           +[] { static_cast<void>(opkit::OpRegistry::Global().KernelsOf("Anything")); },
       }) {
    try {
      look_up();
      std::printf("the registry was read\n");
      return 1;
    } catch (const opkit::Error& error) {
      const std::string message = error.message();
      std::printf("%s\n", message.c_str());
      for (const char* part : {"header-only", "OPKIT_COMPILED", "opkit::opkit"})
        if (message.find(part) == std::string::npos) return 1;
    }
  }
  return opkit::CheckRegistrations().size() == 1 ? 0 : 1;
}
