// expect: opkit needs run-time types: remove -fno-rtti from the compiler's options
// flags: -fno-rtti
#include "opkit/config.hpp"
