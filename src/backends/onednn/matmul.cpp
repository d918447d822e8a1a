// Products by constant matrices of opkit::onednn.
#include "opkit/backends/onednn/matmul.hpp"
