// IdleList: the threads of a pool that search for work or sleep because there is none. Its protocol
// ensures that none of them sleeps while there is work. Costs a submitter two loads when no thread
// sleeps.
#ifndef OPKIT_ENGINE_POOL_IDLE_LIST_HPP_
#define OPKIT_ENGINE_POOL_IDLE_LIST_HPP_

#include <atomic>

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A place in the list, on the sleeping thread's stack.
struct IdleThread {
  Parker parker;
  CpuBan ban;
  bool for_loop = false;  // woken for a loop, not for a task
  IdleThread* prev = nullptr;
  IdleThread* next = nullptr;
  bool listed = false;
};

// A thread without work is first `searching`, then asleep in the list. A publisher of work reads
// searching() and sleeping() after publishing; a thread that goes to sleep enters the list, leaves
// `searching`, and then looks at all the work again. All four are seq_cst, as are the publications,
// so at least one of the two sees the other. The publisher either
//  - sees searching() > 0: that searcher stops searching later, to sleep (then it looks again and
//    sees the work) or because it found other work (then the last searcher looks again and wakes
//    another thread); or
//  - sees sleeping() > 0 and wakes one thread, which counts as searching from that moment: a burst
//    of submissions wakes one thread, and each that finds work wakes the next; or
//  - sees neither: every thread of the pool is busy and will look before it sleeps.
class IdleList {
 public:
  int searching() const { return searching_.load(std::memory_order_seq_cst); }
  int sleeping() const { return sleeping_.load(std::memory_order_seq_cst); }

  void StartSearching() { searching_.fetch_add(1, std::memory_order_seq_cst); }
  // Ends this thread's search; true when no other thread searches.
  bool StopSearching() { return searching_.fetch_sub(1, std::memory_order_seq_cst) == 1; }

  void Enlist(IdleThread& self) {
    MutexLock lock(mutex_);
    self.listed = true;
    self.next = first_;
    if (first_) first_->prev = &self;
    first_ = &self;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
  }

  // Removes the thread. Returns false if it has been woken meanwhile; it then counts as searching.
  // Afterwards no thread holds a pointer to `self`.
  bool Delist(IdleThread& self) {
    MutexLock lock(mutex_);
    if (!self.listed) return false;
    Remove(self);
    return true;
  }

  // Wakes the thread that fell asleep last (its cache is the warmest). Returns false if none sleeps
  // or one searches already.
  bool WakeForTask() {
    return Wake([this](IdleThread&) { return searching() == 0; });
  }
  // Wakes a thread even if others search. With `elsewhere` the thread wakes on another CPU than the
  // caller's, since the caller works on the loop itself. The 2 system calls for that cost less than
  // a microsecond, the wake-up some.
  bool WakeForLoop(bool elsewhere) {
    return Wake([elsewhere](IdleThread& sleeper) {
      sleeper.for_loop = true;
      if (elsewhere) sleeper.ban.Ban(CurrentCpu());
      return true;
    });
  }
  void WakeAll() {
    while (Wake([](IdleThread&) { return true; })) {
    }
  }

  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    first_ = nullptr;
    searching_ = 0;
    sleeping_ = 0;
  }

 private:
  // Wakes the thread that fell asleep last. Returns false if none sleeps, or if `prepare` returns
  // false for that thread.
  template <class Prepare>
  bool Wake(Prepare prepare) {
    Parker::Address address = nullptr;
    {
      MutexLock lock(mutex_);
      if (!first_ || !prepare(*first_)) return false;
      StartSearching();
      IdleThread& sleeper = *first_;
      Remove(sleeper);
      address = sleeper.parker.Set();
    }
    Parker::Wake(address);
    return true;
  }
  void Remove(IdleThread& thread) {
    (thread.prev ? thread.prev->next : first_) = thread.next;
    if (thread.next) thread.next->prev = thread.prev;
    thread.listed = false;
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

  Mutex mutex_;
  IdleThread* first_ = nullptr;
  std::atomic<int> sleeping_{0};
  std::atomic<int> searching_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IDLE_LIST_HPP_
