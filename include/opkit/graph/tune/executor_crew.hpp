// ExecutorCrew: executors of a plan that run at the same time, for the runs a second that a plan
// reaches.
#ifndef OPKIT_GRAPH_TUNE_EXECUTOR_CREW_HPP_
#define OPKIT_GRAPH_TUNE_EXECUTOR_CREW_HPP_

#include <barrier>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "opkit/graph/executor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Each executor has a thread.
class ExecutorCrew {
 public:
  explicit ExecutorCrew(std::vector<std::unique_ptr<Executor>> executors)
      : executors_(std::move(executors)),
        sync_(static_cast<ptrdiff_t>(executors_.size()) + 1),
        errors_(executors_.size()) {
    for (size_t i = 0; i < executors_.size(); ++i)
      threads_.emplace_back([this, i] {
        for (;;) {
          sync_.arrive_and_wait();
          if (is_over_) return;
          try {
            executors_[i]->Run();
          } catch (...) {
            errors_[i] = std::current_exception();
          }
          sync_.arrive_and_wait();
        }
      });
  }
  ExecutorCrew(const ExecutorCrew&) = delete;
  ~ExecutorCrew() {
    is_over_ = true;
    sync_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  // Runs `first` on this thread, and the crew on its threads.
  void Run(Executor& first) {
    sync_.arrive_and_wait();
    std::exception_ptr error;
    try {
      first.Run();
    } catch (...) {
      error = std::current_exception();
    }
    sync_.arrive_and_wait();
    for (std::exception_ptr& one : errors_)
      if (std::exception_ptr found = std::exchange(one, nullptr); found && !error) error = found;
    if (error) std::rethrow_exception(error);
  }

 private:
  const std::vector<std::unique_ptr<Executor>> executors_;
  std::barrier<> sync_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
  bool is_over_ = false;  // the barrier publishes it
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_EXECUTOR_CREW_HPP_
