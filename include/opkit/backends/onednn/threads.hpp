// OnednnCall: the scope of a call of oneDNN, which decides how many of OpenMP's threads it may use.
#ifndef OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
#define OPKIT_BACKENDS_ONEDNN_THREADS_HPP_

#include <dlfcn.h>

#include <atomic>

#include "opkit/backends/onednn/backend.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The functions of the OpenMP runtime that oneDNN itself is linked with, looked up in the process:
// a compiler's flag for OpenMP could bring a second runtime. Null where oneDNN uses none.
struct OpenMp {
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;

  static const OpenMp& Get() {
    static const OpenMp found;
    return found;
  }

 private:
  OpenMp() {
    get_max_threads =
        reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    set_num_threads =
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (!set_num_threads) get_max_threads = nullptr;
  }
};

}  // namespace detail

// OpenMP's threads are others than those of the toolkit's pool, and each thread that calls oneDNN
// has a team of its own: with n branches of a graph in oneDNN at once there would be n times as
// many threads as the pool has. So the call that finds nothing else of oneDNN running in the
// process gets as many threads as the pool has, and calls beside it get one each. The number is
// that of the calling thread alone, and the one before comes back at the end of the scope.
class OnednnCall {
 public:
  OnednnCall() {
    const bool alone = running_.fetch_add(1, std::memory_order_relaxed) == 0;
    const detail::OpenMp& openmp = detail::OpenMp::Get();
    if (!openmp.get_max_threads) return;
    threads_ = alone ? ThreadPool::Current().threads() : 1;
    before_ = openmp.get_max_threads();
    if (before_ != threads_) openmp.set_num_threads(threads_);
  }
  ~OnednnCall() {
    if (before_ != threads_) detail::OpenMp::Get().set_num_threads(before_);
    running_.fetch_sub(1, std::memory_order_relaxed);
  }
  OnednnCall(const OnednnCall&) = delete;
  OnednnCall& operator=(const OnednnCall&) = delete;

  // What oneDNN's primitives are made for, as many fix their number of threads when made.
  int threads() const { return threads_; }

 private:
  // Relaxed: a hint about load; nothing is read because of it.
  static inline std::atomic<int> running_{0};
  int threads_ = 1, before_ = 1;
};

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
