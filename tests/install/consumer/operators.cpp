// Nothing refers to this object: in a static library only its registration could keep it.
#include "operators.hpp"

#include <opkit/opkit.hpp>

namespace {
const bool registered = (RegisteredNames().push_back(opkit::StrCat("Sca", "le")), true);
}  // namespace
