// MpiCluster: the processes of an MPI job, as places for the nodes of a graph.
#ifndef OPKIT_BACKENDS_MPI_CLUSTER_HPP_
#define OPKIT_BACKENDS_MPI_CLUSTER_HPP_

#include <chrono>

#include "opkit/backends/mpi/mpi_communicator.hpp"
#include "opkit/base/timeout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct MpiOptions {
  // The processes that take part; by default all of the job.
  MPI_Comm processes = MPI_COMM_WORLD;
  // How long a process waits for others that have left, and for the messages about its failure.
  Timeout deadline = std::chrono::seconds(2);
};

// Every process makes one at the start of main, and destroys it at the end. Initialises MPI with
// MPI_THREAD_MULTIPLE unless the program has, and then also finalises it. One thread of the program
// works on pending communications; it sleeps while there are none (on several machines, it wakes
// ten times a second or more).
//
//   int main() {
//     MpiCluster cluster;
//     PlanOptions options;
//     options.cluster.communicator = cluster.communicator();
//     Executor(Compile(graph, options)).Run(inputs);
//   }
//
// If a process leaves by an exception, the runs of the others end with an Error. If a process dies,
// MPI ends the job, or, if it lets the others live, their runs end with an Error. A plan may
// outlive the cluster; its runs are then Errors.
class MpiCluster {
 public:
  // Throws kFailedPrecondition if MPI cannot be called by several threads, or has been finalised,
  // and for a process that the mpirun of another MPI started.
  explicit MpiCluster(const MpiOptions& options = {});
  MpiCluster(const MpiCluster&) = delete;
  MpiCluster& operator=(const MpiCluster&) = delete;
  ~MpiCluster();

  const CommunicatorPtr& communicator() const { return communicator_; }

 private:
  const int exceptions_;
  bool initialized_ = false;
  detail::IntrusivePtr<detail::MpiProgress> progress_;
  CommunicatorPtr communicator_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/mpi/impl/cluster.ipp"
#endif

#endif  // OPKIT_BACKENDS_MPI_CLUSTER_HPP_
