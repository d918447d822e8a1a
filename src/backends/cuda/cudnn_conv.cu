#include "opkit/backends/cuda/libraries/cudnn_conv.hpp"
