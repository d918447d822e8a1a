// The fake cuBLASLt and the fake cuDNN, as tests see and set them. Both compute with plain loops on
// the streams of the fake runtime, and abort with a message if an argument is wrong.
#ifndef OPKIT_TESTS_CUDA_FAKE_FAKE_LIBRARIES_HPP_
#define OPKIT_TESTS_CUDA_FAKE_FAKE_LIBRARIES_HPP_

#include <cstdint>
#include <string>
#include <vector>

namespace fake {

// A call of cublasLtMatmul, with the extents of its matrices as row-major matrices have them.
struct CublasCall {
  int64_t m, n, k, batch;
  unsigned epilogue = 1;  // cublasLtEpilogue_t; 1: none
  int algorithm = 1;      // its number in the list of the heuristic
  bool operator==(const CublasCall&) const = default;
};
std::vector<CublasCall> TakeCublasCalls();  // since the last call of this function
void FailCublas(int status);                // what cublasLtMatmul returns; 0: it computes
void OfferCublasAlgorithms(int count);      // how many the heuristic finds

// A call of cuDNN: "forward", "backward data" or "backward filter".
struct CudnnCall {
  std::string name;
  int groups;
  bool operator==(const CudnnCall&) const = default;
};
std::vector<CudnnCall> TakeCudnnCalls();  // since the last call of this function
void FailCudnn(int status);               // what convolutions return; 0: they work
void OfferCudnnAlgorithms(bool offer);    // false: the heuristics find none

}  // namespace fake

#endif  // OPKIT_TESTS_CUDA_FAKE_FAKE_LIBRARIES_HPP_
