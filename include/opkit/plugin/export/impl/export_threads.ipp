// Runs the tasks and loops of a library's operators, and stores the host's call in which they run.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_

#include "opkit/engine/parallel_for.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The thread that runs the tasks, but not the loops, of the library's operators. A second pool of
// threads would take CPUs from the host's pool. The thread ends before the library is unloaded.
struct ExportThreads {
  Mutex mutex;
  std::atomic<ThreadPool*> pool{nullptr};
  void (*finalize)() = nullptr;  // the author's function
  bool described = false;  // true once a host has read the library's description, until finalize
};
inline OPKIT_IMAGE_LOCAL constinit ExportThreads g_export_threads;
inline OPKIT_IMAGE_LOCAL ThreadPool& LibraryPool() {
  ExportThreads& threads = g_export_threads;
  if (ThreadPool* pool = threads.pool.load(std::memory_order_acquire)) [[likely]]
    return *pool;
  MutexLock lock(threads.mutex);
  if (!threads.pool) threads.pool = new ThreadPool(1, "opkit-library");
  return *threads.pool;
}
OPKIT_COLD inline OPKIT_IMAGE_LOCAL void EndLibraryPool() {
  ExportThreads& threads = g_export_threads;
  const struct End {  // runs even if the library author's `finalize` throws
    ~End() {
      delete g_export_threads.pool.exchange(nullptr);
      g_export_threads.described = false;
    }
  } end;
  if (threads.finalize) threads.finalize();
}
// Runs this image's loops on the host's threads.
struct OPKIT_IMAGE_LOCAL HostLoops : LoopRunner {
  HostLoops() : LoopRunner{&RunOnHost} {}

 private:
  static void RunOnHost(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body) {
    // The pool that the thread had before the operator's run. The host may share this variable.
    const ScopedValue pool(t_pool.pool, static_cast<const HostLoops&>(self).pool_);
    RunHostRanges(g_host, nullptr, n, grain, [&](int64_t begin, int64_t end) {
      const ScopedValue nested(t_loop_runner, &self);
      body(begin, end);
    });
  }

  ThreadPool* const pool_ = t_pool.pool;
};
// The host's call in which this thread runs an operator; null outside.
OPKIT_IMAGE_LOCAL inline constinit thread_local const opkit_call* t_host_call = nullptr;

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_
