#include "opkit/base/process/child_process.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/error_of.hpp"

namespace child_process_test {
using opkit::detail::ChildEnd;
using opkit::detail::ChildOutcome;
using opkit::detail::ChildReporter;
using opkit::detail::RunInChild;

TEST_CASE("the answer of work in a child comes back, of any length") {
  const std::string large(1 << 20, 'x');
  for (const ChildEnd end : {ChildEnd::kNormal, ChildEnd::kAtOnce}) {
    int here = 1;
    const ChildOutcome outcome = RunInChild(600, [&](const ChildReporter& voice) {
      here = 2;
      voice.Answer("first");
      voice.Step("the second");
      voice.Answer(large);
      return end;
    });
    CHECK(outcome.answer == large);
    CHECK(outcome.failure == "");
    CHECK(outcome.step == "the second");
    CHECK(here == 1);
  }
}

TEST_CASE("other threads are counted, and a child has none") {
  std::atomic<bool> ends{false};
  std::thread other([&] { ends.wait(false); });
  CHECK(opkit::detail::CountOtherThreads() > 0);
  const ChildOutcome outcome = RunInChild(600, [](const ChildReporter& voice) {
    voice.Answer(std::to_string(opkit::detail::CountOtherThreads()));
    return ChildEnd::kAtOnce;
  });
  CHECK(outcome.answer == "0");
  ends = true;
  ends.notify_one();
  other.join();
}

TEST_CASE("a crash is reported with its signal, the last step, and the last answer") {
  const ChildOutcome outcome = RunInChild(600, [](const ChildReporter& voice) -> ChildEnd {
    voice.Answer("so far");
    voice.Step("the fall");
    std::raise(SIGSEGV);
    return ChildEnd::kAtOnce;
  });
  CHECK(outcome.failure == "crashes");
  CHECK(outcome.how == "signal 11 (Segmentation fault)");
  CHECK(outcome.step == "the fall");
  CHECK(outcome.answer == "so far");
}

TEST_CASE("a child that ends without an answer has crashed, and its status is reported") {
  auto ending = [](int status) {
    return RunInChild(600, [=](const ChildReporter&) -> ChildEnd { _exit(status); }).how;
  };
  CHECK(ending(3) == "exit status 3");
  CHECK(ending(0) == "exit status 0");
}

TEST_CASE("work that does not end is a hang") {
  const ChildOutcome outcome = RunInChild(0.05, [](const ChildReporter&) -> ChildEnd {
    for (;;) pause();
  });
  CHECK(outcome.failure == "hangs");
  CHECK(outcome.how == "no end within 0.05 s");
}

// The first of the descriptors that a file opened now would have.
int NextDescriptor() {
  const int next = dup(0);
  REQUIRE(next >= 0);
  close(next);
  return next;
}

TEST_CASE("work that writes anything into the tests' pipe is reported") {
  const int pipe = NextDescriptor();
  for (const std::string& bytes : {std::string(28, 'a'), std::string(9, '\0'), std::string(1, 'a'),
                                   std::string(100'000, 'x')}) {
    CAPTURE(bytes.size());
    const ChildOutcome outcome = RunInChild(600, [&](const ChildReporter& voice) {
      voice.Answer("right");
      voice.Step("a run");
      for (const int file : {pipe, pipe + 1})
        if (write(file, bytes.data(), bytes.size()) < 0) continue;
      return ChildEnd::kAtOnce;
    });
    CHECK(outcome.failure == "writes where it must not");
    CHECK(outcome.how == "into a file that it has not opened");
    CHECK(outcome.step == "a run");
    CHECK(outcome.answer == "right");
  }
}

TEST_CASE("work that closes the tests' pipe is reported") {
  const int pipe = NextDescriptor();
  const ChildOutcome outcome = RunInChild(600, [&](const ChildReporter& voice) {
    voice.Step("a run");
    for (const int file : {pipe, pipe + 1}) close(file);
    voice.Answer("right");
    return ChildEnd::kAtOnce;
  });
  CHECK(outcome.failure == "crashes");
  CHECK(outcome.how == "it closes files that it has not opened, which its tests need");
  CHECK(outcome.step == "a run");
}

TEST_CASE("neither a child's children nor daemons outlive it, and it cannot end its parent") {
  for (const bool hangs : {false, true}) {
    CAPTURE(hangs);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const ChildOutcome outcome = RunInChild(hangs ? 2 : 600, [&](const ChildReporter& voice) {
      for (const bool daemon : {false, true}) {
        int begun[2];
        if (pipe(begun) != 0) _exit(3);
        if (fork() == 0) {
          if (daemon) setsid();
          if (daemon && fork() != 0) _exit(0);
          for (const int signal : {SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
          close(begun[1]);
          for (;;) pause();
        }
        close(begun[1]);
        char end;
        if (read(begun[0], &end, 1) < 0) _exit(3);  // until they wait
      }
      kill(getppid(), SIGUSR1);
      kill(getppid(), SIGSEGV);
      voice.Answer("right");
      while (hangs) pause();
      return ChildEnd::kAtOnce;
    });
    CHECK(outcome.failure == (hangs ? "hangs" : ""));
    CHECK(outcome.answer == "right");
    close(ends[1]);
    char nothing;
    CHECK(read(ends[0], &nothing, 1) == 0);  // none of them is left that could write
    close(ends[0]);
  }
}

TEST_CASE("an exception of the work is thrown here with its code") {
  const opkit::Error error = ErrorOf([] {
    RunInChild(600, [](const ChildReporter&) -> ChildEnd {
      opkit::Throw(opkit::ErrorCode::kNotFound, "no such thing");
    });
  });
  CHECK(error.code() == opkit::ErrorCode::kNotFound);
  CHECK(error.message() == "no such thing");
}

}  // namespace child_process_test
