// An NCCL made of threads, over the fake CUDA runtime: the ranks of a communicator are in one
// program, and what is put on a stream runs on the stream's thread. As strict as NCCL, which may
// hang or write past a buffer: aborts with a message if ranks meet in different collectives, if a
// message has another size than its receiver expects, or if a buffer is not memory that the rank's
// device may access. The work of a communicator runs in the order in which it was issued.
#ifndef OPKIT_TESTS_CUDA_FAKE_FAKE_NCCL_HPP_
#define OPKIT_TESTS_CUDA_FAKE_FAKE_NCCL_HPP_

#include <nccl.h>

namespace fake {

// The state of all communicators from now on, as after an error of the network; ncclSuccess heals.
void SetNcclState(ncclResult_t state);
int nccl_communicators();  // that exist
int nccl_calls();          // calls that put work on a stream

}  // namespace fake

#endif  // OPKIT_TESTS_CUDA_FAKE_FAKE_NCCL_HPP_
