// Runs a test on engines of 1, 2 and 8 threads and, where it is about results rather than threads,
// on a naive one.
#ifndef OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_
#define OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_

#include <doctest/doctest.h>

#include "opkit/engine/engine.hpp"
#include "watchdog.hpp"

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

#endif  // OPKIT_TESTS_ENGINE_ENGINE_KINDS_HPP_
