// expect: opkit needs a newer compiler: g++ 12 or clang 16 and up
// flags: -U__GNUC__ -D__GNUC__=11
#include "opkit/config.hpp"
