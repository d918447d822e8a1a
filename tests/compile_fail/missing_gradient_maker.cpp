// expect-shown: // defined in opkit/op/gradient/gradient.hpp
#include <opkit/opkit.hpp>

class MyGradient : public opkit::GradientMakerBase {};
