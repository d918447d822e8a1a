// expect: opkit needs C++20: add -std=c++20 (g++ 12 or clang 16 and up) to the compiler's options
// flags: -std=c++17
#include "opkit/config.hpp"
