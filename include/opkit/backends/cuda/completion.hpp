// CUDACompletions: threads that process completions of CUDA work. CUDA's own callback thread must
// not make CUDA calls, so it only queues an item. On these threads events complete, memory is freed
// and user callbacks run, which may issue the next operator.
#ifndef OPKIT_BACKENDS_CUDA_COMPLETION_HPP_
#define OPKIT_BACKENDS_CUDA_COMPLETION_HPP_

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "opkit/backends/cuda/error.hpp"
#include "opkit/base/unique_function.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A queue of completions and its threads. Thread-safe. One thread serves the queue; another one
// starts only if a completion requests a further completion and no thread is idle. The threads
// sleep while the queue is empty and live as long as the process.
class CUDACompletions {
 public:
  // A completion: a thread of the queue calls done(status).
  struct Item {
    UniqueFunction<void(cudaError_t)> done;
    cudaError_t status = cudaSuccess;
  };

  static CUDACompletions& Global() {
    static auto* completions = new CUDACompletions;  // never destroyed: its threads use it
    return *completions;
  }

  // Queues an item. Makes no CUDA call.
  void Push(std::unique_ptr<Item> item) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // Queues an item that need not be processed at once: after kLater, or as soon as a thread waits
  // until the queue is idle.
  void PushLater(std::unique_ptr<Item> item) {
    {
      std::lock_guard lock(mutex_);
      if (waiting_ == 0)
        later_.push_back({std::chrono::steady_clock::now() + kLater, std::move(item)});
      else
        queue_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // Waits until all items have been processed, except those whose threads wait here, as this thread
  // may be one of them. Gives up after five seconds and returns false, because an item may wait for
  // a lock that the calling thread holds.
  bool WaitUntilIdle() {
    const int own = t_serving ? 1 : 0;
    std::unique_lock lock(mutex_);
    ++waiting_;
    blocked_ += own;
    for (; !later_.empty(); later_.pop_front()) queue_.push_back(std::move(later_.front().item));
    ready_.notify_all();
    idle_again_.notify_all();
    const bool idle = idle_again_.wait_for(lock, std::chrono::seconds(5),
                                           [&] { return queue_.empty() && busy_ == blocked_; });
    --waiting_;
    blocked_ -= own;
    return idle;
  }

  // Ensures that a thread other than this one serves the queue. Call it before requesting a
  // completion.
  void EnsureServed() {
    std::lock_guard lock(mutex_);
    if (idle_ > 0 || (started_ && !t_serving)) return;
    std::thread([this] { Serve(); }).detach();
    started_ = true;
    ++idle_;
  }

 private:
  void Serve() {
    t_serving = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      for (TakeDue(); queue_.empty(); TakeDue())
        if (later_.empty())
          ready_.wait(lock);
        else
          ready_.wait_until(lock, TimePoint(later_.front().due));  // a copy: the lock is released
      std::unique_ptr<Item> item = std::move(queue_.front());
      queue_.pop_front();
      --idle_;
      ++busy_;
      lock.unlock();
      item->done(item->status);
      item.reset();
      lock.lock();
      ++idle_;
      --busy_;
      idle_again_.notify_all();
    }
  }

  // Queues the items whose time has come.
  void TakeDue() {
    if (later_.empty()) return;
    const TimePoint now = std::chrono::steady_clock::now();
    for (; !later_.empty() && later_.front().due <= now; later_.pop_front())
      queue_.push_back(std::move(later_.front().item));
  }

  using TimePoint = std::chrono::steady_clock::time_point;
  struct Later {
    TimePoint due;
    std::unique_ptr<Item> item;
  };
  static constexpr std::chrono::milliseconds kLater{1};
  static inline constinit thread_local bool t_serving = false;

  std::mutex mutex_;
  std::condition_variable ready_, idle_again_;
  std::deque<std::unique_ptr<Item>> queue_;
  std::deque<Later> later_;  // in the order of their times
  int waiting_ = 0;          // threads in WaitUntilIdle
  int blocked_ = 0;          // those of them that are processing an item
  int idle_ = 0;             // threads that wait for an item, or are about to wait
  int busy_ = 0;             // items that are being processed
  bool started_ = false;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_COMPLETION_HPP_
