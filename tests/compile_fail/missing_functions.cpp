// expect: REGISTER_OP needs #include <opkit/functions.hpp>
// one-error
#include <opkit/opkit.hpp>

REGISTER_OP(My)
    .setForward([](auto&&...) { return 1; })
    .setParseAttrs([](const auto&, int* in, int* out) { *in = *out = 1; });
