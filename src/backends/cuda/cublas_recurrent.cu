#include "opkit/backends/cuda/libraries/cublas_recurrent.hpp"
