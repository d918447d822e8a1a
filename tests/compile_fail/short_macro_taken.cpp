// expect: another library has already defined one of opkit's short macros
#define REGISTER_CPU_OPERATOR(name, ...) int name;
#include "opkit/op/registration.hpp"
