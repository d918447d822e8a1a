#include "opkit/backends/cuda/libraries/cublas_matmul.hpp"
