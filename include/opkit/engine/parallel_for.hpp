// ParallelFor: a loop whose iterations are spread over the current thread pool; kernels are written
// with it. The body is inlined into a chunk; only chunks are called through a pointer.
#ifndef OPKIT_ENGINE_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_PARALLEL_FOR_HPP_

#include <cstdint>
#include <type_traits>

#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The bodies of ParallelFor and ParallelForRange.
template <class F>
concept IndexBody = std::is_invocable_v<F&, int64_t>;

template <class F>
concept RangeBody = std::is_invocable_v<F&, int64_t, int64_t>;

}  // namespace detail

inline constexpr int64_t kAutoGrain = 0;

namespace detail {

// Replaces the pool for this thread's loops; a library forwards them to its host.
struct LoopRunner {
  void (*run)(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body);
};
OPKIT_IMAGE_LOCAL inline constinit thread_local const LoopRunner* t_loop_runner = nullptr;

OPKIT_IMAGE_LOCAL void RunParallel(int64_t n, int64_t grain, RangeFunction body);

// Calls `work` `count` times, on all its threads at once, and returns when all calls have returned.
using CallOnThreads = FunctionRef<void(int count, FunctionRef<void()> work)>;

// Runs this thread's loops on the threads of a host that calls an operator:
//   const auto run = [&](int count, FunctionRef<void()> work) { … };
//   const LoopsOnHost loops(host_threads, run);
//   const ScopedValue on_host(t_loop_runner, &loops);
// A loop inside a loop runs on the thread of the outer one.
class OPKIT_IMAGE_LOCAL LoopsOnHost : public LoopRunner {
 public:
  // `call` must outlive the object.
  LoopsOnHost(int threads, CallOnThreads call) : LoopRunner{&Run}, threads_(threads), run_(call) {}

 private:
  static void Run(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body);

  int threads_;
  CallOnThreads run_;
};

}  // namespace detail

// Runs the loops of the process's pool on `threads` threads of the program's own, so that the two
// do not compete for the CPUs. The pool is resized to one thread, so that plans run their nodes one
// after the other and start no thread. A loop inside a loop runs on the thread of the outer one. An
// empty function undoes it. Must not be called while a loop runs. Error (kInvalidArgument) for a
// number outside 1 to ThreadPool::kMaxThreads.
//
//   SetParallelFor(8, [&](int count, FunctionRef<void()> work) {
//     tbb::parallel_for(0, count, [&](int) { work(); });
//   });
void SetParallelFor(int threads, detail::RunOnThreads run);

// Calls f(begin, end) so that the ranges make up [0, n) and each index is in one of them. With a
// positive grain the ranges are [k * grain, (k + 1) * grain), the last one shorter. The number of
// threads does not change them, so partial results by range are reproducible. With kAutoGrain the
// ranges depend on how long the body takes. The ranges run in any order and at the same time, under
// the caller's invocation. They run on the current pool's idle workers and on this thread, which
// runs nothing else meanwhile.
//
// Returns when all ranges have ended. If one throws, those not yet begun are skipped and the first
// exception is rethrown here. Loops may be nested to any depth.
template <class F>
void ParallelForRange(int64_t n, int64_t grain, F&& f) {
  static_assert(detail::RangeBody<F>,
                "ParallelForRange: the body must be callable as f(int64_t begin, int64_t end)");
  if (n <= 0) return;
  if (n <= grain)
    f(int64_t{0}, n);
  else
    detail::RunParallel(n, grain, f);
}

// Calls f(i) for every i in [0, n). `grain` is the number of indices that are worth giving to
// another thread, about 10 us of work; a loop with n <= grain is a plain loop, at no cost.
// kAutoGrain measures the grain, which costs 40 to 80 ns a call. It fits unless the first indices
// are much cheaper than the rest.
//
//   opkit::ParallelFor(rows, [&](int64_t row) { Softmax(x + row * columns, columns); });
template <class F>
void ParallelFor(int64_t n, F&& f, int64_t grain = kAutoGrain) {
  static_assert(detail::IndexBody<F>, "ParallelFor: the body must be callable as f(int64_t index)");
  using Body = std::remove_cvref_t<F>;
  ParallelForRange(n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int64_t>) {
      // A copy on the stack keeps the body's captures in registers: the compiler knows that the
      // body's stores do not change it.
      const Body body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/impl/parallel_for.ipp"
#endif

#endif  // OPKIT_ENGINE_PARALLEL_FOR_HPP_
