#include "opkit/base/child_process.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "support/error_of.hpp"

namespace child_process_test {
using opkit::detail::ChildEnd;
using opkit::detail::ChildOutcome;
using opkit::detail::ChildVoice;
using opkit::detail::RunInChild;

TEST_CASE("the answer of work in a child comes back, of any length") {
  const std::string large(1 << 20, 'x');
  for (const ChildEnd end : {ChildEnd::kNormal, ChildEnd::kAtOnce}) {
    int here = 1;
    const ChildOutcome outcome = RunInChild(600, [&](const ChildVoice& voice) {
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
  const ChildOutcome outcome = RunInChild(600, [](const ChildVoice& voice) {
    voice.Answer(std::to_string(opkit::detail::CountOtherThreads()));
    return ChildEnd::kAtOnce;
  });
  CHECK(outcome.answer == "0");
  ends = true;
  ends.notify_one();
  other.join();
}

TEST_CASE("a crash is told with its signal, the last step, and the last answer") {
  const ChildOutcome outcome = RunInChild(600, [](const ChildVoice& voice) -> ChildEnd {
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

TEST_CASE("an end without an answer is a crash, and its status is told") {
  auto ending = [](int status) {
    return RunInChild(600, [=](const ChildVoice&) -> ChildEnd { _exit(status); }).how;
  };
  CHECK(ending(3) == "exit status 3");
  CHECK(ending(0) == "exit status 0");
}

TEST_CASE("work that does not end is a hang") {
  const ChildOutcome outcome = RunInChild(0.05, [](const ChildVoice&) -> ChildEnd {
    for (;;) pause();
  });
  CHECK(outcome.failure == "hangs");
  CHECK(outcome.how == "no end within 0.05 s");
}

TEST_CASE("an exception of the work is thrown here with its code") {
  const opkit::Error error = ErrorOf([] {
    RunInChild(600, [](const ChildVoice&) -> ChildEnd {
      opkit::Throw(opkit::ErrorCode::kNotFound, "no such thing");
    });
  });
  CHECK(error.code() == opkit::ErrorCode::kNotFound);
  CHECK(error.message() == "no such thing");
}

}  // namespace child_process_test
