// IdleSpin: decides how long a thread without work searches before it sleeps.
#ifndef OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_
#define OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct SpinTimes {  // in ticks
  uint64_t idle = 0;
  uint64_t after_loop = 0;  // longer, because the next loop often starts soon after a loop
};

// The state of one thread. `now` is in ticks and never 0.
class IdleSpin {
 public:
  // Records that the thread has worked until now.
  void Worked(bool on_loop, uint64_t now) {
    idle_since_ = 0;
    if (on_loop) last_loop_ = now;
  }
  // Records that the thread has woken. A wake-up for a loop counts as work on it: even if the loop
  // has ended by then, the next one follows soon.
  void Woke(bool for_loop, uint64_t now) {
    idle_since_ = 0;
    last_loop_ = for_loop ? now : 0;
  }
  // True if the thread keeps searching. If `crowded`, enough threads search for tasks, and it keeps
  // searching only if a loop has just ended: the next loop can use all threads.
  bool Goes(uint64_t now, bool crowded, const SpinTimes& times) {
    if (idle_since_ == 0) idle_since_ = now;
    return (!crowded && now - idle_since_ < times.idle) ||
           (last_loop_ != 0 && now - last_loop_ < times.after_loop);
  }

 private:
  uint64_t idle_since_ = 0;  // 0: the thread is not idle
  uint64_t last_loop_ = 0;   // when it last worked on a loop or woke for one; 0: not since it slept
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_
