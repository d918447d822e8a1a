// expect: a loop on CUDA: the body is copied to the device byte by byte, so it must be trivially
#include <vector>

#include "opkit/backends/cuda/parallel_for.hpp"

void Fill(opkit::CUDAContext& context, std::vector<float> table, const float** out) {
  opkit::ParallelFor(context, 10, [=] OPKIT_DEVICE(int64_t i) {
    out[i] = *reinterpret_cast<const float* const*>(&table);
  });
}
