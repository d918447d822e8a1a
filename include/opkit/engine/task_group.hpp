// TaskGroup: tasks of a pool that a thread waits for together. The waiting thread runs tasks too,
// and gets the first exception that a task threw.
#ifndef OPKIT_ENGINE_TASK_GROUP_HPP_
#define OPKIT_ENGINE_TASK_GROUP_HPP_

#include <exception>

#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

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
  TaskGroup(TaskGroup&&) = delete;
  // Waits; an exception that no Wait has rethrown is dropped.
  ~TaskGroup() { pool_.Wait(pending_); }

  void Run(ThreadPool::Task task);
  // Waits for all tasks and rethrows the first exception since the last Wait. Must not be called by
  // the group's own tasks.
  void Wait();

 private:
  struct Member;

  ThreadPool& pool_;
  detail::Latch pending_;
  detail::Mutex mutex_;
  std::exception_ptr error_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/impl/task_group.ipp"
#endif

#endif  // OPKIT_ENGINE_TASK_GROUP_HPP_
