// expect: REGISTER_GRADIENT needs #include <opkit/op/gradient/gradient.hpp>
// expect: NO_GRADIENT needs #include <opkit/op/gradient/gradient.hpp>
#include <opkit/opkit.hpp>

REGISTER_GRADIENT(My, int);
NO_GRADIENT(Other);
