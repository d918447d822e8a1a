// Completes the pending nodes of a replay from other threads.
#ifndef OPKIT_TESTS_ENGINE_SCHEDULE_COMPLETER_HPP_
#define OPKIT_TESTS_ENGINE_SCHEDULE_COMPLETER_HPP_

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "opkit/base/unique_function.hpp"

// From threads of its own, in random order.
class Completer {
 public:
  explicit Completer(unsigned seed) : random_(seed) {
    for (int t = 0; t < 2; ++t) threads_.emplace_back([this] { Main(); });
  }
  ~Completer() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Push(opkit::UniqueFunction<void()> complete) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(complete));
    }
    wake_.notify_one();
  }

 private:
  void Main() {
    for (;;) {
      opkit::UniqueFunction<void()> complete;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        std::swap(queue_[random_() % queue_.size()], queue_.back());
        complete = std::move(queue_.back());
        queue_.pop_back();
      }
      complete();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937 random_;
  bool stopping_ = false;
  std::vector<opkit::UniqueFunction<void()>> queue_;
  std::vector<std::thread> threads_;
};

#endif  // OPKIT_TESTS_ENGINE_SCHEDULE_COMPLETER_HPP_
