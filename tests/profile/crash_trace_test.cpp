#include "opkit/profile/crash_trace.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <csignal>

#include "opkit/profile/profiler.hpp"
#include "support/temporary_folder.hpp"

namespace crash_trace_test {
namespace {

using namespace opkit;

// How a child ends that records under `path`, opens a scope, and is ended by `end`.
template <class End>
int StatusOfChild(const std::string& path, End end) {
  const pid_t child = fork();
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stderr)) _exit(9);
    for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);  // not the test's own
    Profiler::Start({.crash_trace = path});
    const ProfileScope scope("crashes");
    end();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a fatal signal leaves the trace until then, and ends the process as it would have") {
  const TemporaryFolder folder;
  for (const int signal : {SIGSEGV, SIGABRT}) {
    CAPTURE(signal);
    const std::string path = folder / ("trace" + std::to_string(signal));
    const int status = StatusOfChild(path, [&] { raise(signal); });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    const std::string trace = ReadFile(path);
    CHECK(trace.find("\"crashes\"") != std::string::npos);
    CHECK(trace.find("\"open\":true") != std::string::npos);
    CHECK(trace.ends_with("]}\n"));
  }
}

TEST_CASE("a trace that cannot be written leaves the process its end") {
  const TemporaryFolder folder;
  const int status = StatusOfChild(folder / "no/folder", [] { raise(SIGABRT); });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("after Stop, and in a forked child, signals do what they did before") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace";
  const int stopped = StatusOfChild(path, [] {
    Profiler::Stop();
    raise(SIGABRT);
  });
  CHECK(WTERMSIG(stopped) == SIGABRT);
  CHECK(ReadFile(path).empty());
  const int forked = StatusOfChild(path, [] {
    const pid_t child = fork();
    if (child == 0) raise(SIGSEGV);
    int status = -1;
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 7 : 8);
  });
  CHECK(WEXITSTATUS(forked) == 7);
  CHECK(ReadFile(path).empty());
}

}  // namespace crash_trace_test
