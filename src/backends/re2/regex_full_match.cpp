// The kernel of opkit::re2.
#include "opkit/backends/re2/regex_full_match.hpp"
