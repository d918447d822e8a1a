// expect: opkit needs exceptions: remove -fno-exceptions from the compiler's options
// flags: -fno-exceptions
#include "opkit/config.hpp"
