// expect: REGISTER_GRADIENT needs #include <opkit/graph.hpp>
// expect: NO_GRADIENT needs #include <opkit/graph.hpp>
#include <opkit/opkit.hpp>

REGISTER_GRADIENT(My, int);
NO_GRADIENT(Other);
