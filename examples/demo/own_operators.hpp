// The operators that are not the toolkit's: NormalizeImage, which is compiled into the demo, and
// those of a library.
#ifndef OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_
#define OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_

#include <string>

namespace demo {

// Loads it for the rest of the program. What models are compiled afterwards runs its operators,
// also where there is a built-in one of the same name. Throws opkit::Error for what is no library.
void LoadLibrary(const std::string& path);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_OWN_OPERATORS_HPP_
