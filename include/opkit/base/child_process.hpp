// RunInChild: work in a process of its own, so that code of others that crashes or hangs there is a
// sentence here. The check of an operator and the command line run what they test so.
#ifndef OPKIT_BASE_CHILD_PROCESS_HPP_
#define OPKIT_BASE_CHILD_PROCESS_HPP_

#include <cstdint>
#include <string>

#include "opkit/base/function_ref.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct ChildOutcome {
  std::string answer;  // the last that the work gave
  // "crashes", "hangs" or "writes where it must not"; empty: the child ended well.
  std::string failure;
  std::string how;   // "signal 11 (Segmentation fault)", "no end within 60 s"
  std::string step;  // what it said last that it was about to do
};

// How the work talks to the process that waits for it.
class ChildVoice {
 public:
  // `mark` begins each record on the pipe `to`: bytes without it are none of the voice's.
  ChildVoice(int to, uint64_t mark) : to_(to), mark_(mark) {}
  // The next step, whose time begins; without a limit for one that has limits of its own.
  void Step(const std::string& step, bool limited = true) const;
  // The answer, which stays when what comes after it crashes or hangs.
  void Answer(const std::string& answer) const;

 private:
  int to_;
  uint64_t mark_;
};

// How the child ends after its work: as a program does, with the destructors of what was loaded, or
// at once.
enum class ChildEnd { kNormal, kAtOnce };

// Runs `work` in a forked child and waits for it; a step that lasts longer than `seconds` is a
// hang. Neither the child nor what it starts outlives this call, daemons included, nor the calling
// thread: a process between the two waits for all of it. An exception of the work is thrown here as
// an Error with its code and message. Error (kOperatorFailed) where the system gives no process.
//
// The child has the calling thread alone: thread pools and CPU streams start threads anew there,
// and a lock of the program's own that another thread holds at this moment stays locked there.
ChildOutcome RunInChild(double seconds, FunctionRef<ChildEnd(const ChildVoice& voice)> work);

// Threads of this process besides the calling one, which a child would lack: 0 is certain, a thread
// that has just ended may still be counted.
int CountOtherThreads();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/child_process.ipp"
#endif

#endif  // OPKIT_BASE_CHILD_PROCESS_HPP_
