// RunInChild: runs foreign code in a forked process and reports its crash or hang as text. The
// operator check and the command line run the tested code with it.
#ifndef OPKIT_BASE_PROCESS_CHILD_PROCESS_HPP_
#define OPKIT_BASE_PROCESS_CHILD_PROCESS_HPP_

#include <cstdint>
#include <string>

#include "opkit/base/function_ref.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The result of RunInChild.
struct ChildOutcome {
  std::string answer;  // the last answer of the work
  // "crashes", "hangs" or "writes where it must not"; empty if the child ended without a failure.
  std::string failure;
  std::string how;   // "signal 11 (Segmentation fault)", "no end within 60 s"
  std::string step;  // the last step that the work announced
};

// Sends the steps and answers of the work to the waiting process, through a pipe.
class ChildReporter {
 public:
  // `to` is the pipe. Each record begins with `mark`, so that the reader detects bytes that foreign
  // code wrote into the pipe.
  ChildReporter(int to, uint64_t mark) : to_(to), mark_(mark) {}
  // Announces the next step and starts its time limit. `limited` is false for a step that has
  // limits of its own.
  void Step(const std::string& step, bool limited = true) const;
  // Sends the answer; a later crash or hang does not lose it.
  void Answer(const std::string& answer) const;

 private:
  int to_;
  uint64_t mark_;
};

// The child's way to end after its work. kNormal runs exit handlers and static destructors, also
// those of loaded libraries; kAtOnce flushes stdio and calls _exit.
enum class ChildEnd { kNormal, kAtOnce };

// Runs `work` in a forked child and waits for the child. A step longer than `seconds` is a hang.
// When this call or the calling thread ends, a keeper process kills the child and all its
// descendants, daemons included. An exception of the work is thrown here as an Error with its code
// and message. Error (kOperatorFailed) if the system cannot start a process.
//
// The child has only the calling thread. Thread pools and CPU streams start new threads there. If
// another thread of the program holds a lock at the fork, the lock stays locked in the child.
ChildOutcome RunInChild(double seconds, FunctionRef<ChildEnd(const ChildReporter& voice)> work);

// Returns the number of other threads in this process; a forked child lacks them. 0 is exact. A
// larger number may include a thread that has just ended. 1 if /proc cannot be read.
int CountOtherThreads();

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/process/impl/child_process.ipp"
#endif

#endif  // OPKIT_BASE_PROCESS_CHILD_PROCESS_HPP_
