// TaskGroup: tasks of the pool that are waited for together. The waiter takes part, and gets the
// first exception that one of them threw.
#ifndef OPKIT_ENGINE_TASK_GROUP_HPP_
#define OPKIT_ENGINE_TASK_GROUP_HPP_

#include <exception>
#include <utility>

#include "opkit/engine/thread_pool.hpp"

namespace opkit::inline OPKIT_ABI {

//   opkit::TaskGroup group;
//   group.Run([&] { left = Sort(a); });
//   group.Run([&] { right = Sort(b); });
//   group.Wait();
//
// Run may be called from any thread, from the group's own tasks too. After an exception the group's
// other tasks still run. Reusable after Wait.
class TaskGroup {
 public:
  explicit TaskGroup(ThreadPool& pool = ThreadPool::Current()) : pool_(pool) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  // Waits; an exception that nobody has waited for is dropped.
  ~TaskGroup() { pool_.Wait(pending_); }

  void Run(ThreadPool::Task task) {
    Member* member = new Member(*this, std::move(task));
    pending_.Add();
    try {
      pool_.Schedule(member);
    } catch (...) {
      delete member;
      pending_.CountDown();
      throw;
    }
  }

  // Not from the group's own tasks. Rethrows the first exception since the last Wait.
  void Wait() {
    pool_.Wait(pending_);
    detail::MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  struct Member : PoolTask {
    Member(TaskGroup& group, ThreadPool::Task&& task)
        : PoolTask(&RunMember), group(group), task(std::move(task)) {}
    static void RunMember(PoolTask* self) noexcept {
      Member* member = static_cast<Member*>(self);
      TaskGroup& group = member->group;
      try {
        member->task();
      } catch (...) {
        detail::MutexLock lock(group.mutex_);
        if (!group.error_) group.error_ = std::current_exception();
      }
      delete member;
      group.pending_.CountDown();  // the group may be gone from here on
    }
    TaskGroup& group;
    ThreadPool::Task task;
  };

  ThreadPool& pool_;
  Latch pending_;
  detail::Mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_TASK_GROUP_HPP_
