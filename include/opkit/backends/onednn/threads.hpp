// OnednnScope: limits oneDNN to one thread, the caller's. Kernels cut work for several threads into
// pieces, and ParallelFor distributes the pieces over the toolkit's threads.
#ifndef OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
#define OPKIT_BACKENDS_ONEDNN_THREADS_HPP_

#include <dlfcn.h>

#include "opkit/backends/onednn/backend.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Functions of the OpenMP runtime with which oneDNN is linked, looked up in the process by name.
// Compiling with an OpenMP flag instead could load a second runtime. Null if oneDNN does not use
// OpenMP.
struct OpenMp {
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;

  static const OpenMp& Global() {
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

// OpenMP does not use the threads of the toolkit's pool: each thread that calls oneDNN would have
// an OpenMP team of its own, and the threads of a team wait for each other by spinning. On a busy
// machine this costs a time slice in every call: a classifier of 0.9 ms took 258 ms with 2 threads
// on a machine with 1.3 free cores. So every call runs on its calling thread only. The scope
// applies to the calling thread. It is needed both to make a primitive, which fixes its number of
// threads, and to run it.
class OnednnScope {
 public:
  OnednnScope() {
    const detail::OpenMp& openmp = detail::OpenMp::Global();
    if (!openmp.get_max_threads) return;
    before_ = openmp.get_max_threads();
    if (before_ != 1) openmp.set_num_threads(1);
  }
  ~OnednnScope() {
    if (before_ != 1) detail::OpenMp::Global().set_num_threads(before_);
  }
  OnednnScope(const OnednnScope&) = delete;
  OnednnScope& operator=(const OnednnScope&) = delete;

 private:
  int before_ = 1;
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_THREADS_HPP_
