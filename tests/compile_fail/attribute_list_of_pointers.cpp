// expect: an attribute is an integer, bool, floating-point number, string, Tensor, or a std::vector of one of these
#include "opkit/core/attribute.hpp"

auto value = opkit::Attribute(1).Get<std::vector<void*>>();
