// The demo's own operators: NormalizeImage, which is compiled into the demo, and the operators of a
// library.
#ifndef OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_
#define OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_

#include <string>

namespace demo {

// Loads the library for the rest of the program. Models that are compiled afterwards run its
// operators, even if a built-in operator has the same name. Throws opkit::Error for a file that is
// no library.
void LoadLibrary(const std::string& path);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_
