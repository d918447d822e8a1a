// Waits until nothing of earlier test cases is under way, so that only the following calls make
// contexts.
#ifndef OPKIT_TESTS_CUDA_FAKE_QUIET_HPP_
#define OPKIT_TESTS_CUDA_FAKE_QUIET_HPP_

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

// Then forgets the contexts. The completion of one piece of work may issue another one, so each
// stream is drained several times.
inline void ForgetContextsWhenQuiet() {
  constexpr int kTimes = 4, kDevices = 4;
  for (int i = 0; i < kTimes; ++i) {
    for (int device = 0; device < kDevices; ++device) {
      OPKIT_CUDA_CHECK(cudaSetDevice(device));
      OPKIT_CUDA_CHECK(cudaDeviceSynchronize());
    }
    opkit::detail::CUDACompletions::Global().WaitUntilIdle();
  }
  OPKIT_CUDA_CHECK(cudaSetDevice(0));
  fake::ForgetContexts();
}

#endif  // OPKIT_TESTS_CUDA_FAKE_QUIET_HPP_
