// An operator that draws numbers: MXNet hands libraries 1024 states of std::mt19937, which
// libraries ask for by a function of MXNet's C++ name.
#include <random>

#include "boundary.h"

namespace mxnet { namespace ext {
struct OpResource {
  std::mt19937* get_cpu_rand_states() const;  // boundary.c has it
};
}  // namespace ext
}  // namespace mxnet

// max(x + noise, 0), where each element takes the state after that of the element before.
int NoisyRelu(const Attributes*, const Tensor* in, int, Tensor* out, int,
              const Resource* resource) {
  std::mt19937* const states =
      reinterpret_cast<const mxnet::ext::OpResource*>(resource)->get_cpu_rand_states();
  if (!states) return ERROR_MESSAGE("there are no random states");
  const int64_t size = SizeOf(&in[0]);
  for (int64_t i = 0; i < size; ++i) {
    std::normal_distribution<float> noise(0, 1);
    const float x = static_cast<const float*>(in[0].data)[i] + noise(states[i % 1024]);
    static_cast<float*>(out[0].data)[i] = x > 0 ? x : 0;
  }
  return SUCCESS;
}
