// A lost wake-up shows as a hang: this ends the program with a sentence instead.
#ifndef OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_
#define OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_

#include <unistd.h>

#include <csignal>

class Watchdog {
 public:
  explicit Watchdog(unsigned seconds = 120) {
    std::signal(SIGALRM, [](int) {
      constexpr char kText[] = "watchdog: the test hangs, a wake-up was lost\n";
      [[maybe_unused]] const auto written = write(2, kText, sizeof kText - 1);
      _exit(1);
    });
    alarm(seconds);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { alarm(0); }
};

#endif  // OPKIT_TESTS_SUPPORT_WATCHDOG_HPP_
