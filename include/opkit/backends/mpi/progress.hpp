// MpiProgress: the thread of a process that tests what MPI works on, and that hears of the failures
// of other processes.
#ifndef OPKIT_BACKENDS_MPI_PROGRESS_HPP_
#define OPKIT_BACKENDS_MPI_PROGRESS_HPP_

#include <condition_variable>
#include <list>
#include <optional>
#include <thread>

#include "opkit/backends/mpi/all_reduce.hpp"
#include "opkit/backends/mpi/types.hpp"
#include "opkit/cluster/communicator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class MpiProgress;

// A communicator that the messages of other processes break.
class MpiMember : public Communicator {
 public:
  void BreakHere(const std::string& reason) noexcept { SetBroken(reason); }
};

// MPI's handles for one communicator. Work that goes on without the communicator keeps them.
class MpiLink final : public RefCounted {
 public:
  // Takes the handle, and gives it back to MPI unless the link is broken.
  MpiLink(IntrusivePtr<MpiProgress> progress, MPI_Comm comm, std::string path);
  ~MpiLink() override;

  MpiProgress& progress() const { return *progress_; }
  MPI_Comm comm() const { return comm_; }
  // Returns the name of the communicator, which all processes give to it.
  const std::string& path() const { return path_; }
  // Returns the handle for a group. All members must make their groups in the same order.
  MPI_Comm CommOf(const std::vector<int>& group);
  // Returns a number for a collective that is made of messages. The members begin their collectives
  // in one order, so that they get the same numbers.
  int NextNumber(const std::vector<int>& group);
  std::exception_ptr failure() const;
  void SetFailure(const std::exception_ptr& error);

 private:
  const IntrusivePtr<MpiProgress> progress_;
  const MPI_Comm comm_;
  const std::string path_;
  mutable std::mutex mutex_;
  std::map<std::vector<int>, MPI_Comm> groups_;
  std::map<std::vector<int>, int> numbers_;
  std::exception_ptr failure_;
};

// A communication, or a call of a communicator, on which MPI works.
struct MpiWork {
  IntrusivePtr<MpiLink> link;
  IntrusivePtr<Communication> communication;  // null for a call
  // A call: what to do at the end, and the memory that MPI uses.
  UniqueFunction<void(std::exception_ptr)> ended = {};
  IntrusivePtr<RefCounted> memory = {};
  std::vector<MPI_Request> requests = {};
  // The dtype, the rank and the extents of a dynamic message.
  std::vector<int64_t> header = {};
  bool awaits_header = false;
  int64_t bytes = 0;  // about how many move
  std::optional<MpiAllReduce> all_reduce = {};

  // Begins a message or a collective. If it throws, MPI may work on a part of it.
  void Begin(const std::vector<int>& group);
  // Returns true when MPI has ended the work. Throws if it has failed.
  bool Test();
  // Ends the receives that can end without their messages.
  void Cancel();
  // Ends the work.
  void Finish(std::exception_ptr error);

 private:
  void BeginMessage();
  void BeginCollective(const std::vector<int>& group);
  void MoveBytes(bool sends, void* buffer, int64_t size);
  void TakeHeader();
  void BeginAllReduce(MPI_Comm comm, const std::vector<int>& group);
};

// Thread-safe. While there is work the thread tests it without a pause for about the time that it
// should take, and later at most once in a millisecond. Without work it sleeps. In a job of several
// machines it then still calls MPI, ever more rarely and at last ten times a second: over TCP, Open
// MPI may end a Send before it has sent the message that ends the Recv.
class MpiProgress final : public RefCounted {
 public:
  // `control` carries the messages about failures; the call duplicates it, and waits for the other
  // processes.
  MpiProgress(MPI_Comm control, int64_t deadline_ns);
  ~MpiProgress() override;

  int process() const { return process_; }
  int processes() const { return processes_; }
  int64_t max_tag() const { return max_tag_; }
  const MpiReductions& reductions() const { return reductions_; }
  // True if this machine has more processes of the job than cores.
  bool shares_cores() const { return shares_cores_; }
  // True if all processes of the job are on this machine.
  bool is_one_machine() const { return is_one_machine_; }
  // False while the thread has no work.
  bool is_busy() const { return is_busy_.load(std::memory_order_relaxed); }

  // Takes work that has begun. Ends it on the thread.
  void Add(MpiWork work);
  // Ends the work now, and keeps its buffers until MPI has ended it.
  void Abandon(MpiWork work, const std::exception_ptr& error);
  // Makes the thread look at the failures of links.
  void Wake();

  // Names a communicator for the messages of other processes.
  void Join(const std::string& path, MpiMember* communicator);
  void Leave(const std::string& path);
  // Returns the reason for which another process has broken the communicator before it joined;
  // empty if none has.
  std::string TakeBroken(const std::string& path);
  // Sends all other processes the message that the communicator of this name is broken.
  void TellBroken(const std::string& path, const std::string& reason) noexcept;

  // Ends the thread and all communicators. Sends the other processes the message that this one
  // leaves; if `failure` is not empty, the message breaks their communicators.
  void Close(const std::string& failure) noexcept;
  // False after Close.
  bool is_open() const { return is_open_.load(std::memory_order_acquire); }
  // True if a process has died: MPI_Finalize might then wait for it for ever.
  bool has_dead_process() const { return has_dead_process_; }

 private:
  struct Told {
    std::string text;
    std::vector<MPI_Request> requests;
  };

  void Run() noexcept;
  // Return true if anything has ended or come.
  bool TestAll();
  bool TestTold();
  bool is_told();
  void ReadControl();
  void LookForProcesses(int64_t progressed_ns);
  void Pause(int64_t now, int64_t progressed_ns);
  // Waits for work. Returns false if there is none and MPI must be called.
  bool AwaitWork(std::unique_lock<std::mutex>& lock, int64_t progressed_ns);
  void Tell(std::string text) noexcept;
  void Break(const std::string& path, const std::string& reason) noexcept;
  void BreakAll(const std::string& reason) noexcept;

  MPI_Comm control_ = MPI_COMM_NULL;
  const int64_t deadline_ns_;
  int process_ = 0, processes_ = 1;
  int64_t max_tag_ = 32767;
  const MpiReductions reductions_;
  std::vector<int64_t> pids_;  // of the processes on this machine; 0 for others
  bool shares_cores_ = false, is_one_machine_ = true;
  // Relaxed: a hint, which decides only whether a run tests its communication briefly itself.
  std::atomic<bool> is_busy_ = false;
  std::atomic<bool> is_open_ = true;

  std::mutex mutex_;  // guards the members up to the next empty line
  std::condition_variable changed_;
  std::vector<MpiWork> added_;
  std::vector<MpiWork> newly_abandoned_;
  std::list<Told> told_;
  std::map<std::string, MpiMember*> communicators_;
  std::map<std::string, std::string> broken_;  // reasons for communicators that are not there yet
  std::string failed_;                         // why all communicators are broken
  std::exception_ptr closed_;
  int64_t closing_ns_ = 0;  // when the thread ends although messages have not been sent
  bool is_closing_ = false, is_closed_ = false;
  bool is_woken_ = false;

  // Only the thread uses these members.
  std::list<MpiWork> active_;
  std::vector<MpiWork> abandoned_;
  std::map<int, int64_t> left_;  // processes that have left, and when
  int64_t looked_ns_ = 0;
  std::atomic<bool> has_dead_process_ = false;
  std::thread thread_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/mpi/impl/progress.ipp"
#include "opkit/backends/mpi/impl/work.ipp"
#endif

#endif  // OPKIT_BACKENDS_MPI_PROGRESS_HPP_
