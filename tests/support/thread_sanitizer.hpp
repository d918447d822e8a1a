// What ThreadSanitizer is told before main: included by the one source that has it.
#ifndef OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_
#define OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_

// Exceptions that several threads hold are counted inside libstdc++, where ThreadSanitizer does not
// see the order: whoever lets go of one last seems to race with those who have read it.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n"
         "race:std::logic_error::~logic_error\n"
         "race:opkit::*Error::~Error\n";
}

// TSan ends a forked child that starts threads unless told otherwise.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

#endif  // OPKIT_TESTS_SUPPORT_THREAD_SANITIZER_HPP_
