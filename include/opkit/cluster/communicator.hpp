// Communicator: the end that one process has of a group of processes which exchange tensors. MPI,
// NCCL and the threads of a program (opkit/cluster/local.hpp) provide communicators.
#ifndef OPKIT_CLUSTER_COMMUNICATOR_HPP_
#define OPKIT_CLUSTER_COMMUNICATOR_HPP_

#include <map>
#include <mutex>

#include "opkit/cluster/communication.hpp"
#include "opkit/graph/plan/process_link.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Communicator;
using CommunicatorPtr = detail::IntrusivePtr<Communicator>;

// Thread-safe. A plan has a communicator of its own (Duplicate), so that plans do not take each
// other's messages. A run that fails on one process breaks the plan's communicator everywhere:
// pending communications end with an Error that names the process, the node and the cause, and so
// do all later ones. Compile the graph again on every process to go on.
//
//   PlanOptions options;
//   options.cluster.communicator = communicator;
//   Executor exec(Compile(graph, options));
class Communicator : public detail::ProcessLink {
 public:
  Communicator();
  ~Communicator() override;

  // Returns the kind of communicator: "local", "mpi", "nccl".
  virtual std::string_view backend() const = 0;
  // Returns the device of the buffers that it takes; the CPU by default. Compile puts the nodes
  // that communicate there. A device does its communications one after the other, so Compile also
  // gives those of a process the order of the whole graph.
  OPKIT_INLINE virtual Device device() const;
  // Makes a communicator of the same processes. Every process must make the same ones in the same
  // order; the call may wait for the others.
  virtual CommunicatorPtr Duplicate() = 0;
  // Returns the texts of all processes, in their order. Waits for the others, which must call it
  // too. Throws the Error of a broken communicator.
  virtual std::vector<std::string> Exchange(const std::string& text) = 0;

  // Prepares a group for its collectives; does nothing by default. Compile calls it for all groups
  // of a plan, on all processes in the same order, members or not. The call may wait for the other
  // processes.
  OPKIT_INLINE virtual void MakeGroup(const std::vector<int>& group);

  // Starts the communication, which began its run before (Communication::Begin), and ends it by
  // Finish, on any thread and perhaps before Start returns. Throws, without calling Finish, if the
  // communicator is broken. Puts a communication on a device on its stream; throws
  // kFailedPrecondition if it is a collective whose turn has not come.
  void Start(const detail::IntrusivePtr<Communication>& communication);
  // Breaks the communicator here and on all other processes: each pending and later communication
  // ends with kCancelled, the process that failed and `reason`. Does nothing if it is broken.
  void Break(const std::string& reason) noexcept;
  void Break(const std::exception_ptr& error) noexcept;
  // Refuses a run that begins after a run has failed, or while another run of the plan goes on: its
  // messages would reach the wrong run. Also refuses a run for which a callback waits on a thread
  // that ends communications.
  void BeginRun(bool waits) final;
  void EndRun() noexcept final;
  void RecordRun(uint64_t invocation) const noexcept final;
  std::exception_ptr RunFailed(const std::exception_ptr& error) noexcept final;
  // Returns the reason why the communicator is broken; empty if it is not.
  std::string broken() const;

  // The number of the plan that has this communicator, the same on all its processes and of no
  // other plan of the job; 0 if no plan has it. Compile sets it.
  int64_t plan() const { return plan_; }
  void SetPlan(int64_t number) { plan_ = number; }
  // Returns the number of this communicator, which the attribute "communicator" of nodes names.
  int64_t number() const { return number_; }
  // Returns the communicator of that number; null if it is gone.
  static CommunicatorPtr Find(int64_t number);

 protected:
  // Starts a communication whose turn has come. `group` has all processes that take part.
  virtual void DoStart(detail::IntrusivePtr<Communication> communication,
                       const std::vector<int>& group) = 0;
  // Sends `reason` to the other processes, so that each calls SetBroken.
  virtual void TellBroken(const std::string& reason) noexcept = 0;
  // Ends all communications that this communicator works on, by Finish(error). Those that must go
  // on using their buffers keep them. Called again for communications that started meanwhile.
  virtual void FailPending(const std::exception_ptr& error) noexcept = 0;

  // Marks this end as broken and ends what is pending. Returns false if it was broken before.
  bool SetBroken(const std::string& reason) noexcept;
  // For a communicator that exchanges texts and failures by another one, `host`. Follow makes this
  // end break whenever the host's end breaks, until Unfollow, which the destructor must call.
  // BreakHost breaks the host here and on all other processes.
  void Follow(Communicator& host);
  void Unfollow(Communicator& host) noexcept;
  static void BreakHost(Communicator& host, const std::string& reason) noexcept;

 private:
  // The collectives of one group wait here for their turn, by their numbers.
  struct Turns {
    int64_t next = 0;  // the turn that starts next
    int64_t last = 0;  // the turns that were given to communications without a channel
    bool is_starting = false;
    std::map<int64_t, detail::IntrusivePtr<Communication>> waiting;  // by turn
    std::map<int64_t, int64_t> runs;  // by channel, the runs that have begun
  };

  // Calls DoStart, and ends the communication if the communicator broke meanwhile.
  void StartNow(const detail::IntrusivePtr<Communication>& communication,
                const std::vector<int>& group);
  std::exception_ptr BrokenError() const;

  const int64_t number_;
  int64_t plan_ = 0;
  std::vector<int> everyone_;  // the numbers of all processes, from the first Start on
  mutable std::mutex mutex_;
  std::string broken_;
  bool is_running_ = false;           // a run of the plan goes on here
  bool has_failed_ = false;           // a run of the plan has failed here
  int64_t run_ = -1;                  // the number of the plan's run that began last
  Communicator* follower_ = nullptr;  // the communicator that breaks with this one
  std::map<std::vector<int>, Turns> turns_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/communicator.ipp"
#endif

#endif  // OPKIT_CLUSTER_COMMUNICATOR_HPP_
