// ThreadSanitizer's options and suppressions, read before main. One source of each test program
// includes this header.
#ifndef OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_
#define OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_

// libstdc++ counts the holders of an exception without instrumentation, so ThreadSanitizer does not
// see their order. The thread that releases the exception last seems to race with earlier readers.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n"
         "race:std::logic_error::~logic_error\n"
         "race:opkit::*Error::~Error\n";
}

// By default TSan ends a forked child that starts threads.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

#endif  // OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_
