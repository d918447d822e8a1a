// The threads that process completions of CUDA work. CUDA's own callback thread must not make CUDA
// calls, so it only queues an item; on these threads events complete, memory is freed, and user
// callbacks run, which may issue the next operator.
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

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Thread-safe. One thread serves the queue; another is started only when a callback is about to
// wait for CUDA work itself. The threads sleep when the queue is empty, and live as long as the
// process.
class CUDACompletions {
 public:
  struct Item {
    UniqueFunction<void(cudaError_t)> done;
    cudaError_t status = cudaSuccess;
  };

  static CUDACompletions& Get() {
    static auto* completions = new CUDACompletions;  // its threads use it until the process ends
    return *completions;
  }

  // Makes no CUDA call.
  void Push(std::unique_ptr<Item> item) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // Returns once every item has been processed but that of this thread, or after five seconds, as
  // one may wait for what the calling thread holds.
  void WaitUntilIdle() {
    const int own = t_serving ? 1 : 0;
    std::unique_lock lock(mutex_);
    idle_again_.wait_for(lock, std::chrono::seconds(5),
                         [&] { return queue_.empty() && busy_ == own; });
  }

  // Call it before waiting for a completion: it ensures that a thread other than this one serves
  // the queue.
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
      ready_.wait(lock, [&] { return !queue_.empty(); });
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

  static inline constinit thread_local bool t_serving = false;

  std::mutex mutex_;
  std::condition_variable ready_, idle_again_;
  std::deque<std::unique_ptr<Item>> queue_;
  int idle_ = 0;  // threads that wait for an item, or are on their way to
  int busy_ = 0;  // items that are being processed
  bool started_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_COMPLETION_HPP_
