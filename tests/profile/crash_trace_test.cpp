#include "opkit/profile/crash_trace.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "opkit/profile/counters.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/awkward.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace crash_trace_test {
namespace {

using namespace opkit;

constexpr int kSignals[] = {SIGSEGV, SIGBUS,  SIGILL, SIGFPE,  SIGABRT, SIGTRAP, SIGSYS,
                            SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGXCPU};

// Waits until the other threads of this process sleep. In a forked child the allocator of
// AddressSanitizer stays locked if another thread was allocating at the fork; that of glibc does
// not.
void AwaitOtherThreads() {
  const std::string self = std::to_string(gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    for (;;) {
      const std::string stat =
          ReadFile(task.path() / "stat");  // "17 (name) S ...", empty at its end
      const size_t at = stat.rfind(") ");
      if (at == stat.npos || stat[at + 2] == 'S') break;
      sched_yield();
    }
  }
}

// How a child ends that does `prepare`, records under `path`, opens a scope, and is ended by `end`.
template <class Prepare, class End>
int StatusOfChild(const std::string& path, Prepare prepare, End end) {
  AwaitOtherThreads();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (!std::freopen("/dev/null", "w", stderr)) _exit(9);
    for (const int signal : kSignals) std::signal(signal, SIG_DFL);  // not the test's own
    prepare();
    Profiler::Start({.crash_trace = path});
    const ProfileScope scope("crashes");
    end();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}
template <class End>
int StatusOfChild(const std::string& path, End end) {
  return StatusOfChild(
      path, [] {}, end);
}

bool IsWholeTrace(const std::string& path) {
  const std::string trace = ReadFile(path);
  return Contains(trace, "\"crashes\"") && Contains(trace, "\"open\":true") &&
         trace.ends_with("]}\n");
}

// Deeper than any stack is.
[[maybe_unused]] __attribute__((noinline)) int Descend(int depth) {
  volatile char frame[1 << 12];
  frame[0] = static_cast<char>(depth);
  return (depth < INT_MAX ? Descend(depth + 1) : 0) + frame[0];
}

}  // namespace

TEST_CASE("a fatal signal leaves the trace until then, and ends the process as it would have") {
  const TemporaryFolder folder;
  for (const int signal : kSignals) {
    CAPTURE(signal);
    const std::string path = folder / ("trace" + std::to_string(signal));
    const int status = StatusOfChild(path, [&] { raise(signal); });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(IsWholeTrace(path));
  }
}

TEST_CASE("threads that crash at once leave one whole trace") {
  const TemporaryFolder folder;
  for (int count = 1; count <= 8; ++count) {
    CAPTURE(count);
    const std::string path = folder / ("trace" + std::to_string(count));
    const int status = StatusOfChild(path, [&] {
      std::atomic<int> ready{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
          const ProfileScope scope("thread");
          ++ready;
          while (ready < count) {
          }
          raise(i % 2 ? SIGFPE : SIGSEGV);
        });
      for (std::thread& thread : threads) thread.join();
    });
    CHECK(WIFSIGNALED(status));
    CHECK(IsWholeTrace(path));
    CHECK(Count(ReadFile(path), "\"name\":\"thread\"") == count);
  }
}

TEST_CASE("a crash while other threads record leaves valid JSON for any names") {
  const TemporaryFolder folder;
  for (int count = 1; count <= 8; ++count) {
    CAPTURE(count);
    const std::string path = folder / ("trace" + std::to_string(count));
    const int status = StatusOfChild(path, [&] {
      std::atomic<int> ready{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < count; ++i)
        threads.emplace_back([&] {
          for (const auto& [name, utf8] : AwkwardNames()) const ProfileScope scope(name);
          for (const double number : AwkwardNumbers()) ProfileCount("number", number);
          ++ready;
          for (int i = 0; i < 1000; ++i) const ProfileScope scope("records");
          pause();
        });
      while (ready < count) {
      }
      static volatile uintptr_t address = 0x128;
      *reinterpret_cast<volatile int*>(address) = 1;
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(IsWholeTrace(path));
    std::map<std::string, int> found;
    const auto json = nlohmann::json::parse(ReadFile(path));
    for (const auto& event : json.at("traceEvents")) ++found[event.at("name").get<std::string>()];
    for (const auto& [name, utf8] : AwkwardNames())
      if (!name.empty()) CHECK(found[utf8] >= count);
  }
}

#ifndef OPKIT_TESTS_THREAD_SANITIZER  // whose own stack of frames overflows first
TEST_CASE("a stack overflow leaves a trace, on every thread that records") {
  const TemporaryFolder folder;
  for (const bool main : {true, false}) {
    CAPTURE(main);
    const std::string path = folder / (main ? "main" : "thread");
    const int status = StatusOfChild(path, [&] {
      const auto overflow = [] {
        const ProfileScope scope("deep");
        Descend(0);
      };
      if (main) overflow();
      std::thread(overflow).join();
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(IsWholeTrace(path));
    CHECK(Contains(ReadFile(path), "\"deep\""));
  }
}
#endif

TEST_CASE("a handler of the program's own gets its fault as it was, after the trace") {
  const TemporaryFolder folder;
  const int status = StatusOfChild(
      folder / "trace",
      [] {
        struct sigaction action = {};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
          _exit(info->si_addr == reinterpret_cast<void*>(0x128) && info->si_code == SEGV_MAPERR
                    ? 7
                    : 8);
        };
        sigaction(SIGSEGV, &action, nullptr);
      },
      [] {
        static volatile uintptr_t address = 0x128;
        *reinterpret_cast<volatile int*>(address) = 1;
      });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(IsWholeTrace(folder / "trace"));
}

TEST_CASE("a signal that a program handles or ignores is left to it, and recording goes on") {
  const TemporaryFolder folder;
  static std::atomic<int> seen{0};
  const int status = StatusOfChild(
      folder / "trace",
      [] {
        std::signal(SIGINT, [](int) { seen += 1; });
        std::signal(SIGHUP, SIG_IGN);
        std::signal(SIGFPE, [](int) { seen += 10; });
      },
      [] {
        raise(SIGINT);
        raise(SIGHUP);
        raise(SIGFPE);  // leaves a trace, and goes on
        { const ProfileScope scope("after"); }
        const Profile profile = Profiler::Read();
        _exit(seen == 11 && Profiler::IsRunning() && profile.spans.size() == 2 ? 7 : 8);
      });
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(IsWholeTrace(folder / "trace"));
}

TEST_CASE("the name of the file decides the format of the trace") {
  const TemporaryFolder folder;
  StatusOfChild(folder / "trace.pftrace", [] { raise(SIGABRT); });
  CHECK(ReadFile(folder / "trace.pftrace").starts_with("\x0a"));
  StatusOfChild(folder / "trace.html", [] { raise(SIGABRT); });  // without a writer of reports
  CHECK(IsWholeTrace(folder / "trace.html.json"));
}

TEST_CASE("a trace that cannot be written leaves the process its end") {
  const TemporaryFolder folder;
  const int status = StatusOfChild(folder / "no/folder", [] { raise(SIGABRT); });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("after Stop, and in a forked child, signals have their earlier handlers") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace";
  for (const int signal : {SIGABRT, SIGTERM}) {
    const int stopped = StatusOfChild(path, [&] {
      Profiler::Stop();
      raise(signal);
    });
    CHECK(WTERMSIG(stopped) == signal);
    CHECK(ReadFile(path).empty());
  }
  const int forked = StatusOfChild(path, [] {
    AwaitOtherThreads();
    const pid_t child = fork();
    if (child == 0) raise(SIGSEGV);
    int status = -1;
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 7 : 8);
  });
  CHECK(WEXITSTATUS(forked) == 7);
  CHECK(ReadFile(path).empty());
}

TEST_CASE("a forked child that records leaves a trace of its own") {
  const TemporaryFolder folder;
  const int forked = StatusOfChild(folder / "parent", [&] {
    const int status = StatusOfChild(folder / "child", [] { raise(SIGSEGV); });
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 7 : 8);
  });
  CHECK(WEXITSTATUS(forked) == 7);
  // The same without a handler of the test's own in between.
  const int bare = StatusOfChild(folder / "parent", [&] {
    AwaitOtherThreads();
    const pid_t child = fork();
    if (child == 0) {
      Profiler::Start({.crash_trace = folder / "bare"});
      const ProfileScope scope("crashes");
      raise(SIGSEGV);
    }
    int status = -1;
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 7 : 8);
  });
  CHECK(WEXITSTATUS(bare) == 7);
  for (const char* name : {"child", "bare"}) CHECK(IsWholeTrace(folder / name));
  CHECK(ReadFile(folder / "parent").empty());
}

}  // namespace crash_trace_test
