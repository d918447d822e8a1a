// A library whose static initialiser crashes.
#include <csignal>
#include <opkit/plugin/author.hpp>

static const int crashed = std::raise(SIGSEGV);
