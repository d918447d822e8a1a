// OnednnScope: oneDNN on one thread, the caller's. What is to run on several is cut into pieces
// that ParallelFor spreads over the toolkit's threads.
#ifndef OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
#define OPKIT_BACKENDS_ONEDNN_THREADS_HPP_

#include <dlfcn.h>

#include "opkit/backends/onednn/backend.hpp"

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
    get_max_threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (!set_num_threads) get_max_threads = nullptr;
  }
};

}  // namespace detail

// OpenMP's threads are others than those of the toolkit's pool: each thread that calls oneDNN would
// have a team of its own, and the threads of a team wait for each other by spinning. Where the
// machine is busy with anything else that takes a time slice at every call: a classifier of 0.9 ms
// took 258 ms on 2 threads of a machine of which 1.3 were free. So every call runs on its own
// thread alone. The scope holds for the calling thread, and is needed to make a primitive, which
// fixes its number of threads, as well as to run it.
class OnednnScope {
 public:
  OnednnScope() {
    const detail::OpenMp& openmp = detail::OpenMp::Get();
    if (!openmp.get_max_threads) return;
    before_ = openmp.get_max_threads();
    if (before_ != 1) openmp.set_num_threads(1);
  }
  ~OnednnScope() {
    if (before_ != 1) detail::OpenMp::Get().set_num_threads(before_);
  }
  OnednnScope(const OnednnScope&) = delete;
  OnednnScope& operator=(const OnednnScope&) = delete;

 private:
  int before_ = 1;
};

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
