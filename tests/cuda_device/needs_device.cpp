// Ends a program of tests before its first test if this machine has no CUDA device.
#include <cstdio>
#include <cstdlib>

#include "opkit/backends/cuda/device.hpp"

namespace {

[[maybe_unused]] const bool kHasDevice = [] {
  if (opkit::CUDADeviceCount() > 0) return true;
  std::puts("skipped: no CUDA device");
  std::exit(0);
}();

}  // namespace
