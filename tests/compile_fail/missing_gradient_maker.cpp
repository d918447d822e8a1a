// expect-shown: // defined in opkit/graph.hpp
#include <opkit/opkit.hpp>

class MyGradient : public opkit::GradientMakerBase {};
