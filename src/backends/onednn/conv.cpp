// Convolutions of opkit::onednn.
#include "opkit/backends/onednn/conv.hpp"
#include "opkit/backends/onednn/conv_transpose.hpp"
