// OnThreads runs a test on engines of 1, 2 and 8 threads. OnEveryEngine also runs it on a naive
// engine, for tests of results rather than threads.
#ifndef OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_
#define OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_

#include <doctest/doctest.h>

#include <thread>
#include <utility>
#include <vector>

#include "opkit/engine/engine.hpp"
#include "support/watchdog.hpp"

template <class F>
void OnThreads(F&& test) {
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    Watchdog watchdog;
    opkit::Engine engine({.threads = threads});
    test(engine);
  }
}

template <class F>
void OnEveryEngine(F&& test) {
  OnThreads(test);
  INFO("naive");
  Watchdog watchdog;
  opkit::Engine engine({.naive = true});
  test(engine);
}

// A place where an asynchronous operation leaves its handle for the test.
class Handles {
 public:
  auto Keep() {
    return [this](opkit::Completion done) {
      opkit::detail::MutexLock lock(mutex_);
      handles_.push_back(std::move(done));
    };
  }
  opkit::Completion Await() {
    for (;;) {
      {
        opkit::detail::MutexLock lock(mutex_);
        if (!handles_.empty()) {
          opkit::Completion handle = std::move(handles_.back());
          handles_.pop_back();
          return handle;
        }
      }
      std::this_thread::yield();
    }
  }

 private:
  opkit::detail::Mutex mutex_;
  std::vector<opkit::Completion> handles_;
};

#endif  // OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_
