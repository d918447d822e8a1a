// LocalCluster: processes that are threads of this program, for tests and examples without MPI.
#ifndef OPKIT_CLUSTER_LOCAL_HPP_
#define OPKIT_CLUSTER_LOCAL_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/cluster/communicator.hpp"
#include "opkit/cluster/cost.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {
class LocalGroup;
}

// A number of "processes", each of which is a thread of the program. Reductions combine the blocks
// in the order of the processes, so that results do not depend on time.
//
//   LocalCluster cluster(2);
//   cluster.Run([&](CommunicatorPtr communicator) {
//     PlanOptions options;
//     options.cluster.communicator = communicator;
//     Executor(Compile(graph, options)).Run(inputs);
//   });
class LocalCluster {
 public:
  // `delay` simulates a network: a message or collective ends so long after its processes have come
  // to it (CommunicationSeconds, with a ring for AllReduce). A process sends one message at a time
  // and receives one at a time, and a collective keeps all of its processes busy. Throws
  // kInvalidArgument unless there are 1 to 4,096 processes, and for a negative or infinite delay.
  explicit LocalCluster(int processes, const LinkCost& delay = {});
  ~LocalCluster();

  int processes() const { return static_cast<int>(communicators_.size()); }
  // Returns the communicator of a process. Throws kOutOfRange for a process that does not exist.
  const CommunicatorPtr& communicator(int process) const;
  // Calls `body` for each process on a thread of its own and waits for all. If calls throw, breaks
  // the communicators, so that no process waits for ever, and throws the exception of the process
  // that threw first. A call that waits in Compile for a process whose call has returned throws
  // kCancelled.
  void Run(FunctionRef<void(const CommunicatorPtr&)> body);

 private:
  std::vector<CommunicatorPtr> communicators_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/local.ipp"
#endif

#endif  // OPKIT_CLUSTER_LOCAL_HPP_
