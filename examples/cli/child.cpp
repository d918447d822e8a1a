#include "child.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "opkit/base/strings.hpp"
#include "program.hpp"

namespace cli {
namespace {

// What the child writes: a letter, the size of the text, the text.
enum Record : char { kStep = 's', kAnswer = 'a', kFailure = 'f', kHint = 'h' };

// Reads what the child writes, each record at most until its deadline.
class Reader {
 public:
  Reader(int from, double seconds)
      : from_(from), limit_(std::chrono::ceil<Clock::duration>(Seconds(seconds))) {}

  // False when the time is over, which `late` tells, or the child has closed its end.
  bool Read(Record* kind, std::string* text) {
    deadline_ = Clock::now() + limit_;
    size_t size = 0;
    if (!ReadAll(kind, sizeof *kind) || !ReadAll(&size, sizeof size)) return false;
    text->resize(size);
    return ReadAll(text->data(), size);
  }
  bool late() const { return late_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  bool ReadAll(void* data, size_t size) {
    for (size_t done = 0; done < size;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd ready = {from_, POLLIN, 0};
      const int found =
          poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX)));
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
  Clock::duration limit_;
  Clock::time_point deadline_;
  bool late_ = false;
};

void WriteAll(int to, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = write(to, static_cast<const char*>(data) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(1);  // nobody listens any more
    done += static_cast<size_t>(count);
  }
}
void WriteRecord(int to, Record kind, const std::string& text) {
  const size_t size = text.size();
  WriteAll(to, &kind, sizeof kind);
  WriteAll(to, &size, sizeof size);
  WriteAll(to, text.data(), size);
}
void WriteFailure(int to, const Failure& failure) {
  WriteRecord(to, kHint, failure.hint());
  WriteRecord(to, kFailure, static_cast<char>(failure.code()) + std::string(failure.what()));
}

// A crash is to be seen as the signal that it is, whoever wants to handle it (a sanitizer's
// runtime does), and to leave no core file behind.
void CrashPlainly() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    std::signal(signal, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

// The child is killed when the thread that made it ends, of whatever.
void DieWith(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before
}

[[noreturn]] void RunChild(int to, const ChildWork& work) {
  CrashPlainly();
  ChildEnd end = ChildEnd::kAtOnce;
  try {
    end = work(ChildVoice(to));
  } catch (const Failure& failure) {
    WriteFailure(to, failure);
  } catch (const opkit::Error& error) {
    WriteFailure(to, {ExitCode::kRunFailed, Describe(error)});
  } catch (const std::bad_alloc&) {
    WriteFailure(to, {ExitCode::kRunFailed, "out of memory"});
  } catch (const std::exception& error) {
    WriteFailure(to, {ExitCode::kRunFailed, error.what()});
  }
  std::fflush(nullptr);
  if (end == ChildEnd::kAtOnce) _exit(0);
  std::exit(0);
}

// Ends what is left of the child and of what it has started, and tells how the child ended: empty
// when it did so well.
std::string EndingOf(pid_t child) {
  kill(-child, SIGKILL);  // before its number is free for another group; what ends keeps its status
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return status == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void ChildVoice::Step(const std::string& step) const { WriteRecord(to_, kStep, step); }
void ChildVoice::Answer(const std::string& answer) const { WriteRecord(to_, kAnswer, answer); }

ChildOutcome RunInChild(double seconds, const ChildWork& work) {
  int ends[2];
  std::fflush(nullptr);  // or the child would write it once more
  if (pipe(ends) != 0)
    throw Failure(ExitCode::kRunFailed, std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t parent = getpid(), child = fork();
  if (child < 0)
    throw Failure(ExitCode::kRunFailed,
                  std::string("cannot start a process: ") + std::strerror(errno));
  setpgid(child, child);  // in both, for whichever comes first
  if (child == 0) {
    close(ends[0]);
    DieWith(parent);
    RunChild(ends[1], work);
  }
  close(ends[1]);

  ChildOutcome outcome;
  std::string hint, failure;
  bool answered = false;
  Reader reader(ends[0], seconds);
  Record kind;
  for (std::string text; reader.Read(&kind, &text);) {
    answered |= kind == kAnswer || kind == kFailure;
    (kind == kStep     ? outcome.step
     : kind == kAnswer ? outcome.answer
     : kind == kHint   ? hint
                       : failure) = std::move(text);
  }
  close(ends[0]);
  outcome.how = EndingOf(child);
  if (reader.late()) outcome.how = opkit::StrCat("no end within ", seconds, " s");
  if (!answered && outcome.how.empty()) outcome.how = "exit status 0";
  if (!failure.empty()) throw Failure(static_cast<ExitCode>(failure[0]), failure.substr(1), hint);
  if (!outcome.how.empty()) outcome.failure = reader.late() ? "hangs" : "crashes";
  return outcome;
}

}  // namespace cli
