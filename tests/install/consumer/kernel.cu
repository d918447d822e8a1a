// Compiles only with what opkit::cuda carries: C++20, the include path and extended lambdas.
#include <cuda_runtime.h>

#include "opkit/config.hpp"

template <class F>
__global__ void Apply(F f) {
  f();
}

int main() {
  Apply<<<1, 1>>>([] OPKIT_DEVICE {});
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
