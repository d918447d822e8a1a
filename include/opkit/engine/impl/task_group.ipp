// The definitions of opkit/engine/task_group.hpp.
#ifndef OPKIT_ENGINE_IMPL_TASK_GROUP_IPP_
#define OPKIT_ENGINE_IMPL_TASK_GROUP_IPP_

#include "opkit/engine/task_group.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A task of a group; deletes itself when it has run.
struct TaskGroup::Member : detail::PoolTask {
  Member(TaskGroup& its_group, ThreadPool::Task&& its_task)
      : detail::PoolTask(&RunMember), group(its_group), task(std::move(its_task)) {}
  static void RunMember(detail::PoolTask* self) noexcept {
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

OPKIT_INLINE void TaskGroup::Run(ThreadPool::Task task) {
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

OPKIT_INLINE void TaskGroup::Wait() {
  pool_.Wait(pending_);
  detail::MutexLock lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_TASK_GROUP_IPP_
