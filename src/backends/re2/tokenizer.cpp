// The kernel of Tokenizer of opkit::re2.
#include "opkit/backends/re2/tokenizer.hpp"
