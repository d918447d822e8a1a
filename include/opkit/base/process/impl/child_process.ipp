// The definitions of opkit/base/process/child_process.hpp: a fork, a pipe, and records on it.
#ifndef OPKIT_BASE_PROCESS_IMPL_CHILD_PROCESS_IPP_
#define OPKIT_BASE_PROCESS_IMPL_CHILD_PROCESS_IPP_

#include <dirent.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/process/child_process.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Kind of a record on the pipe. A record is a head and a text; the text of kThrown begins with one
// byte, the error code.
enum class ChildRecord : uint32_t { kStep, kUnlimitedStep, kAnswer, kThrown };
struct ChildRecordHead {
  uint64_t mark;
  uint64_t size;  // number of bytes of the text
  ChildRecord kind;
  uint32_t unused = 0;
};

// Reads the child's records from the pipe. Waits at most `seconds` for each record; after
// kUnlimitedStep without limit.
class ChildReader {
 public:
  ChildReader(int from, double seconds, uint64_t mark)
      : from_(from), limit_ns_(seconds * 1e9), mark_(mark) {}

  // Reads one record. Returns false in three cases: the time is over (late() is true then), the
  // bytes are no record (spoilt() is true then), or every process has closed its writing end of the
  // pipe.
  bool Read(ChildRecord* kind, std::string* text) {
    deadline_ns_ = limited_ ? static_cast<double>(MonotonicNs()) + limit_ns_ : HUGE_VAL;
    ChildRecordHead head;
    const size_t found = ReadAll(&head, sizeof head);
    if (found == 0) return false;
    spoilt_ = found < sizeof head.mark || head.mark != mark_;
    if (spoilt_ || found < sizeof head) return false;
    *kind = head.kind;
    if (*kind == ChildRecord::kStep || *kind == ChildRecord::kUnlimitedStep)
      limited_ = *kind == ChildRecord::kStep;
    text->resize(head.size);
    return ReadAll(text->data(), head.size) == head.size;
  }
  bool late() const { return late_; }
  bool spoilt() const { return spoilt_; }

 private:
  // Returns the number of bytes read: fewer than `size` at the deadline, at the end of the pipe and
  // after an error.
  size_t ReadAll(void* data, size_t size) {
    size_t done = 0;
    while (done < size) {
      const double left_ms = (deadline_ns_ - static_cast<double>(MonotonicNs())) * 1e-6 + 1;
      pollfd ready = {from_, POLLIN, 0};
      const int found = poll(&ready, 1,
                             left_ms <= 0        ? 0
                             : left_ms < INT_MAX ? static_cast<int>(left_ms)
                                                 : INT_MAX);
      if (found < 0 && errno == EINTR) continue;
      late_ = found == 0;
      if (found <= 0) return done;
      const ssize_t count = read(from_, static_cast<char*>(data) + done, size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return done;
      done += static_cast<size_t>(count);
    }
    return done;
  }

  int from_;
  double limit_ns_, deadline_ns_ = 0;
  const uint64_t mark_;
  bool limited_ = true, late_ = false, spoilt_ = false;
};

// Exit status of a child that cannot write to its pipe any more.
inline constexpr int kPipeIsClosed = 113;
// Exit status of a keeper that cannot start the child.
inline constexpr int kNoProcess = 114;

inline void WriteAll(int to, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = write(to, static_cast<const char*>(data) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(kPipeIsClosed);
    done += static_cast<size_t>(count);
  }
}
inline void WriteRecord(int to, uint64_t mark, ChildRecord kind, const std::string& text) {
  const ChildRecordHead head = {mark, text.size(), kind};
  WriteAll(to, &head, sizeof head);
  WriteAll(to, text.data(), text.size());
}
OPKIT_INLINE void ChildReporter::Step(const std::string& step, bool limited) const {
  WriteRecord(to_, mark_, limited ? ChildRecord::kStep : ChildRecord::kUnlimitedStep, step);
}
OPKIT_INLINE void ChildReporter::Answer(const std::string& answer) const {
  WriteRecord(to_, mark_, ChildRecord::kAnswer, answer);
}

// Restores the default signal handlers, so that a crash ends the process with its signal.
// Sanitizers and test frameworks install their own handlers. Disables core files.
inline void CrashPlainly() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    std::signal(signal, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

[[noreturn]] inline void RunAsChild(int to, uint64_t mark,
                                    FunctionRef<ChildEnd(const ChildReporter&)> work) {
  ChildEnd end = ChildEnd::kAtOnce;
  try {
    end = work(ChildReporter(to, mark));
  } catch (...) {
    const Error error = CurrentError();
    WriteRecord(to, mark, ChildRecord::kThrown, static_cast<char>(error.code()) + error.message());
  }
  std::fflush(nullptr);
  if (end == ChildEnd::kAtOnce) _exit(0);
  std::exit(0);
}

// Returns the first 4095 bytes of a file in /proc; empty if it cannot be read.
inline std::string ReadProcFile(const std::string& path) {
  char text[4096];
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
}

// Returns the parent of a process; 0 if /proc does not show it.
inline pid_t ParentOf(pid_t process) {
  const std::string text = ReadProcFile(StrCat("/proc/", process, "/stat"));  // "7 (name) S 6 …"
  const size_t after = text.rfind(')');
  return after == text.npos || after + 4 >= text.size() ? 0 : std::atoi(text.c_str() + after + 4);
}
// Sends SIGKILL to the children of this process and returns the number of signals sent.
inline int KillChildren() {
  int killed = 0;
  DIR* const processes = opendir("/proc");
  if (!processes) return 0;
  while (const dirent* entry = readdir(processes)) {
    const auto process = static_cast<pid_t>(std::atoi(entry->d_name));
    if (process > 0 && ParentOf(process) == getpid() && kill(process, SIGKILL) == 0) ++killed;
  }
  closedir(processes);
  return killed;
}

// Runs in the keeper process, a subreaper: it becomes the parent of descendants whose own parent
// has ended. Waits until the child ends or SIGTERM arrives, kills the child and all descendants,
// and ends with the child's status. Every other signal is blocked.
[[noreturn]] inline void KeepChild(pid_t child, const sigset_t& awaited) {
  siginfo_t ended = {};
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0)
    if (sigwaitinfo(&awaited, nullptr) == SIGTERM) break;
  kill(child, SIGKILL);
  kill(-child, SIGKILL);
  int status = 0;
  for (bool has_ended = false;;) {
    int ending = 0;
    pid_t one = waitpid(-1, &ending, has_ended ? WNOHANG : 0);
    if (one == 0 && KillChildren() > 0) one = waitpid(-1, &ending, 0);
    if (one < 0 && errno == EINTR) continue;
    if (one <= 0) break;  // no child is left but those of another user
    if (one == child) status = ending, has_ended = true;
  }
  if (WIFSIGNALED(status)) {
    sigset_t same;
    sigemptyset(&same);
    sigaddset(&same, WTERMSIG(status));
    std::signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &same, nullptr);
    raise(WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

// Forks the child from the keeper process and runs KeepChild. `parent` is the process that called
// RunInChild.
[[noreturn]] inline void StartAndKeepChild(pid_t parent, int to, uint64_t mark,
                                           FunctionRef<ChildEnd(const ChildReporter&)> work) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  prctl(PR_SET_PDEATHSIG, SIGTERM);   // the keeper ends with the thread that forked it
  if (getppid() != parent) _exit(1);  // the parent has ended already
  CrashPlainly();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction at_end = {};
  sigaction(SIGCHLD, nullptr, &at_end);
  std::signal(SIGCHLD, SIG_DFL);  // an ignored SIGCHLD would discard the status
  const pid_t keeper = getpid(), child = fork();
  if (child < 0) _exit(kNoProcess);
  setpgid(child, child);  // both processes call it, because either may run first
  if (child > 0) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    KeepChild(child, awaited);
  }
  sigaction(SIGCHLD, &at_end, nullptr);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(1);
  RunAsChild(to, mark, work);
}

// Waits for the keeper, which ends with the child's status. Returns a description of a failure; an
// empty string after success.
inline std::string EndingOfChild(pid_t keeper) {
  int status = 0;
  while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  if (WEXITSTATUS(status) == kPipeIsClosed)
    return "it closes files that it has not opened, which its tests need";
  if (WEXITSTATUS(status) == kNoProcess) return "the system starts no more processes";
  return status == 0 ? "" : StrCat("exit status ", WEXITSTATUS(status));
}

OPKIT_INLINE ChildOutcome RunInChild(double seconds,
                                     FunctionRef<ChildEnd(const ChildReporter& voice)> work) {
  int ends[2];
  std::fflush(nullptr);  // else the child would write the buffered text again
  if (pipe2(ends, O_CLOEXEC) != 0)
    Throw(ErrorCode::kOperatorFailed, "cannot make a pipe: ", std::strerror(errno));
  const uint64_t mark = (Ticks() ^ static_cast<uint64_t>(getpid())) * 0x9e3779b97f4a7c15u;
  const pid_t parent = getpid(), keeper = fork();
  if (keeper < 0) {
    const int error = errno;
    close(ends[0]), close(ends[1]);
    Throw(ErrorCode::kOperatorFailed, "cannot start a process: ", std::strerror(error));
  }
  setpgid(keeper, keeper);  // both processes call it, because either may run first
  if (keeper == 0) {
    close(ends[0]);
    StartAndKeepChild(parent, ends[1], mark, work);
  }
  close(ends[1]);

  ChildOutcome outcome;
  std::string thrown;
  bool answered = false;
  ChildReader reader(ends[0], seconds, mark);
  ChildRecord kind;
  for (std::string text; reader.Read(&kind, &text);) {
    const bool answers = kind == ChildRecord::kAnswer || kind == ChildRecord::kThrown;
    answered |= answers;
    (!answers                       ? outcome.step
     : kind == ChildRecord::kAnswer ? outcome.answer
                                    : thrown) = std::move(text);
  }
  kill(keeper, SIGTERM);  // harmless if the keeper has ended: it stays a zombie until waitpid
  kill(keeper, SIGCONT);
  close(ends[0]);
  outcome.how = EndingOfChild(keeper);
  if (reader.late()) outcome.how = StrCat("no end within ", seconds, " s");
  if (reader.spoilt()) outcome.how = "into a file that it has not opened";
  if (!answered && outcome.how.empty()) outcome.how = "exit status 0";
  if (!thrown.empty()) Throw(static_cast<ErrorCode>(thrown[0]), thrown.substr(1));
  if (!outcome.how.empty())
    outcome.failure = reader.spoilt() ? "writes where it must not"
                      : reader.late() ? "hangs"
                                      : "crashes";
  return outcome;
}

OPKIT_INLINE int CountOtherThreads() {
  constexpr int kUnknown = 1;  // assume another thread
  constexpr std::string_view kLabel = "\nThreads:";
  const std::string status = ReadProcFile("/proc/self/status");
  const size_t at = status.find(kLabel);
  return at == status.npos ? kUnknown : std::atoi(status.c_str() + at + kLabel.size()) - 1;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_PROCESS_IMPL_CHILD_PROCESS_IPP_
