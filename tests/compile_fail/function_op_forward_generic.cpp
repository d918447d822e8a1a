// expect: setForward(f): write int f(std::map<std::string, std::string> attrs,
#include "opkit/op/function/function_operator.hpp"

REGISTER_OP(Broken).setForward([](auto&, auto, auto, auto&) { return 1; });
