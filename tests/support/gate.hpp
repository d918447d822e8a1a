// A gate at which work on a stream waits until the test opens it. With it a test forces the order
// of two events instead of hoping for it. Ends the program if the gate never opens.
#ifndef OPKIT_TESTS_SUPPORT_GATE_HPP_
#define OPKIT_TESTS_SUPPORT_GATE_HPP_

#include <condition_variable>
#include <mutex>

#include "watchdog.hpp"

class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Reports the arrival, then waits until the gate is open.
  void Pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void AwaitArrival(int count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  Watchdog watchdog_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

#endif  // OPKIT_TESTS_SUPPORT_GATE_HPP_
