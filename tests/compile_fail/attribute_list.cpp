// compiles
#include "opkit/core/attribute.hpp"

auto value = opkit::Attribute(1).Get<std::vector<float>>();
