// expect-shown: // defined in opkit/functions.hpp
#include <opkit/opkit.hpp>

float Slope(const opkit::AttrMap& attrs) { return attrs.Get("slope", 1.f); }
