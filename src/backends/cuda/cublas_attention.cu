#include "opkit/backends/cuda/libraries/cublas_attention.hpp"
