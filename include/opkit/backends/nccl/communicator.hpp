// The communicator on NCCL: the processes of a group exchange tensors between their CUDA devices,
// on CUDA streams.
#ifndef OPKIT_BACKENDS_NCCL_COMMUNICATOR_HPP_
#define OPKIT_BACKENDS_NCCL_COMMUNICATOR_HPP_

#include <chrono>

#include "opkit/base/timeout.hpp"
#include "opkit/cluster/communicator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct NcclOptions {
  // The number of this process's CUDA device. -1: the number of the process, modulo the number of
  // devices. NCCL requires that each process of a machine has a device of its own.
  int device = -1;
  // How long a process that destroys a communicator waits for the others to do so.
  Timeout deadline = std::chrono::seconds(2);
};

// Returns a communicator of the processes of `host`, which must all call the function. `host`, a
// communicator on MPI or of threads, hands out NCCL's unique ids, and reports failures to the
// other processes; the tensors do not go through it.
//
//   MpiCluster cluster;
//   const CommunicatorPtr communicator = MakeNcclCommunicator(cluster.communicator());
//   PlanOptions options;
//   options.devices = {communicator->device(), {DeviceType::kCPU, 0}};
//   options.cluster.communicator = communicator;
//
// Nodes that communicate run on communicator->device(). They are put on CUDA streams like other
// kernels, so the host does not wait for them. Their dtypes and shapes must be known before a run,
// AllReduce cannot be deterministic, and a plan runs once at a time. If the communicator breaks,
// NCCL's work is aborted, and the events of the nodes fail. Throws kUnsupported if this machine
// lacks the device.
CommunicatorPtr MakeNcclCommunicator(const CommunicatorPtr& host, const NcclOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/nccl/impl/communicator.ipp"
#endif

#endif  // OPKIT_BACKENDS_NCCL_COMMUNICATOR_HPP_
