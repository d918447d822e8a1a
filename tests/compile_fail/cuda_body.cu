// compiles
#include "opkit/backends/cuda/parallel_for.hpp"

struct Table {
  const float* values;
  int64_t size[2];
};
void Fill(opkit::CUDAContext& context, Table table, float* out) {
  opkit::ParallelFor(context, 10, [=] OPKIT_DEVICE(int64_t i) { out[i] = table.values[i]; });
}
