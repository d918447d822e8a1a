// The definitions of the umbrella that the test names.
#define OPKIT_IMPLEMENTATION
#include UMBRELLA
