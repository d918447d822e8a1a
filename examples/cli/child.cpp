#include "child.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "program.hpp"

namespace cli {
namespace {

// What the child writes: a letter, the size of the text, the text.
enum Record : char { kStep = 's', kAnswer = 'a', kFailure = 'f', kHint = 'h' };

bool ReadAll(int from, void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = read(from, static_cast<char*>(data) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}
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

[[noreturn]] void RunChild(int to, const std::function<std::string(const ChildStep&)>& work) {
  CrashPlainly();
  try {
    WriteRecord(to, kAnswer, work([to](const std::string& step) { WriteRecord(to, kStep, step); }));
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
  _exit(0);  // without the destructors of what was loaded
}

std::string EndingOf(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

ChildOutcome RunInChild(const std::function<std::string(const ChildStep& say)>& work) {
  int ends[2];
  std::fflush(nullptr);  // or the child would write it once more
  if (pipe(ends) != 0)
    throw Failure(ExitCode::kRunFailed, std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0)
    throw Failure(ExitCode::kRunFailed,
                  std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    RunChild(ends[1], work);
  }
  close(ends[1]);

  ChildOutcome outcome;
  std::string hint, failure;
  bool answered = false;
  char kind = 0;
  for (size_t size = 0; ReadAll(ends[0], &kind, 1) && ReadAll(ends[0], &size, sizeof size);) {
    std::string text(size, '\0');
    if (!ReadAll(ends[0], text.data(), size)) break;
    answered |= kind == kAnswer || kind == kFailure;
    (kind == kStep     ? outcome.step
     : kind == kAnswer ? outcome.answer
     : kind == kHint   ? hint
                       : failure) = std::move(text);
  }
  close(ends[0]);
  const std::string ending = EndingOf(child);
  if (!answered) outcome.crash = ending;
  if (!failure.empty()) throw Failure(static_cast<ExitCode>(failure[0]), failure.substr(1), hint);
  return outcome;
}

}  // namespace cli
