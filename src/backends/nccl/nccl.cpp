// The communicator on NCCL and its kernels.
#include "opkit/backends/nccl/impl/communicator.ipp"
#include "opkit/backends/nccl/operators.hpp"
