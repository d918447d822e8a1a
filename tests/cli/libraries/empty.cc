// A library whose author has registered nothing.
#include <opkit/plugin/author.hpp>
