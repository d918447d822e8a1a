// Conv of opkit::onednn.
#include "opkit/backends/onednn/conv.hpp"
