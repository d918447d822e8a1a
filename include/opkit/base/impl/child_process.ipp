// The definitions of opkit/base/child_process.hpp: a fork, a pipe, and records on it.
#ifndef OPKIT_BASE_IMPL_CHILD_PROCESS_IPP_
#define OPKIT_BASE_IMPL_CHILD_PROCESS_IPP_

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "opkit/base/child_process.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A record of the child is a letter, the size of its text, and the text. The text of an exception
// begins with its code.
enum class ChildRecord : char { kStep = 's', kAnswer = 'a', kThrown = 't' };

// Reads what the child writes, each record at most until its deadline.
class ChildReader {
 public:
  ChildReader(int from, double seconds) : from_(from), limit_ns_(seconds * 1e9) {}

  // False when the time is over, which `late` tells, or the child has closed its end.
  bool Read(ChildRecord* kind, std::string* text) {
    deadline_ns_ = static_cast<double>(MonotonicNs()) + limit_ns_;
    size_t size = 0;
    if (!ReadAll(kind, sizeof *kind) || !ReadAll(&size, sizeof size)) return false;
    text->resize(size);
    return ReadAll(text->data(), size);
  }
  bool late() const { return late_; }

 private:
  bool ReadAll(void* data, size_t size) {
    for (size_t done = 0; done < size;) {
      const double left_ms = (deadline_ns_ - static_cast<double>(MonotonicNs())) * 1e-6 + 1;
      pollfd ready = {from_, POLLIN, 0};
      const int found = poll(&ready, 1,
                             left_ms <= 0        ? 0
                             : left_ms < INT_MAX ? static_cast<int>(left_ms)
                                                 : INT_MAX);
      if (found < 0 && errno == EINTR) continue;
      late_ = found == 0;
      if (found <= 0) return false;
      const ssize_t count = read(from_, static_cast<char*>(data) + done, size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  }

  int from_;
  double limit_ns_, deadline_ns_ = 0;
  bool late_ = false;
};

inline void WriteAll(int to, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = write(to, static_cast<const char*>(data) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(1);  // nobody listens any more
    done += static_cast<size_t>(count);
  }
}
inline void WriteRecord(int to, ChildRecord kind, const std::string& text) {
  const size_t size = text.size();
  WriteAll(to, &kind, sizeof kind);
  WriteAll(to, &size, sizeof size);
  WriteAll(to, text.data(), size);
}
OPKIT_INLINE void ChildVoice::Step(const std::string& step) const {
  WriteRecord(to_, ChildRecord::kStep, step);
}
OPKIT_INLINE void ChildVoice::Answer(const std::string& answer) const {
  WriteRecord(to_, ChildRecord::kAnswer, answer);
}

// A crash is to be seen as the signal that it is, whoever wants to handle it (a sanitizer's
// runtime and test frameworks do), and to leave no core file behind.
inline void CrashPlainly() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    std::signal(signal, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

[[noreturn]] inline void RunAsChild(int to, FunctionRef<ChildEnd(const ChildVoice&)> work) {
  CrashPlainly();
  ChildEnd end = ChildEnd::kAtOnce;
  try {
    end = work(ChildVoice(to));
  } catch (...) {
    const Error error = CurrentError();
    WriteRecord(to, ChildRecord::kThrown, static_cast<char>(error.code()) + error.message());
  }
  std::fflush(nullptr);
  if (end == ChildEnd::kAtOnce) _exit(0);
  std::exit(0);
}

// Ends what is left of the child and of what it has started, and tells how the child ended: empty
// when it did so well.
inline std::string EndingOfChild(pid_t child) {
  kill(-child, SIGKILL);  // before its number is free for another group; what ends keeps its status
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  return status == 0 ? "" : StrCat("exit status ", WEXITSTATUS(status));
}

OPKIT_INLINE ChildOutcome RunInChild(double seconds,
                                     FunctionRef<ChildEnd(const ChildVoice& voice)> work) {
  int ends[2];
  std::fflush(nullptr);  // or the child would write it once more
  if (pipe2(ends, O_CLOEXEC) != 0)
    Throw(ErrorCode::kOperatorFailed, "cannot make a pipe: ", std::strerror(errno));
  const pid_t parent = getpid(), child = fork();
  if (child < 0) {
    const int error = errno;
    close(ends[0]), close(ends[1]);
    Throw(ErrorCode::kOperatorFailed, "cannot start a process: ", std::strerror(error));
  }
  setpgid(child, child);  // in both, for whichever comes first
  if (child == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);   // it ends with the thread that made it
    if (getppid() != parent) _exit(1);  // which has ended before
    RunAsChild(ends[1], work);
  }
  close(ends[1]);

  ChildOutcome outcome;
  std::string thrown;
  bool answered = false;
  ChildReader reader(ends[0], seconds);
  ChildRecord kind;
  for (std::string text; reader.Read(&kind, &text);) {
    answered |= kind != ChildRecord::kStep;
    (kind == ChildRecord::kStep     ? outcome.step
     : kind == ChildRecord::kAnswer ? outcome.answer
                                    : thrown) = std::move(text);
  }
  close(ends[0]);
  outcome.how = EndingOfChild(child);
  if (reader.late()) outcome.how = StrCat("no end within ", seconds, " s");
  if (!answered && outcome.how.empty()) outcome.how = "exit status 0";
  if (!thrown.empty()) Throw(static_cast<ErrorCode>(thrown[0]), thrown.substr(1));
  if (!outcome.how.empty()) outcome.failure = reader.late() ? "hangs" : "crashes";
  return outcome;
}

OPKIT_INLINE int CountOtherThreads() {
  constexpr int kUnknown = 1;  // there may be some
  char status[4096] = {};
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return kUnknown;
  const ssize_t size = read(file, status, sizeof status - 1);
  close(file);
  const char* const count = size > 0 ? std::strstr(status, "\nThreads:") : nullptr;
  return count ? std::atoi(count + std::strlen("\nThreads:")) - 1 : kUnknown;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_CHILD_PROCESS_IPP_
