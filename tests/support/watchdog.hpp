// Ends the program with a message and a source line if a test hangs, as after a lost wake-up.
#ifndef OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_
#define OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <source_location>

class Watchdog {
 public:
  explicit Watchdog(unsigned seconds = 120,
                    std::source_location where = std::source_location::current()) {
    std::snprintf(text_, sizeof text_, "watchdog: the test hangs, a wake-up was lost: %s:%u\n",
                  where.file_name(), static_cast<unsigned>(where.line()));
    std::signal(SIGALRM, [](int) {
      [[maybe_unused]] const auto written = write(2, text_, std::strlen(text_));
      _exit(1);
    });
    alarm(seconds);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { alarm(0); }

 private:
  static inline char text_[512];  // formatted early, since a signal handler may not format
};

#endif  // OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_
