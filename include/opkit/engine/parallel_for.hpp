// ParallelFor: a loop whose iterations are spread over the current thread pool. What kernels are
// written with. The body is inlined into a chunk; only chunks are called through a pointer.
#ifndef OPKIT_ENGINE_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_PARALLEL_FOR_HPP_

#include <cstdint>
#include <type_traits>

#include "opkit/base/platform.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit::inline OPKIT_ABI {

// What ParallelFor and ParallelForRange call.
template <class F>
concept IndexBody = std::is_invocable_v<F&, int64_t>;
template <class F>
concept RangeBody = std::is_invocable_v<F&, int64_t, int64_t>;

inline constexpr int64_t kAutoGrain = 0;

namespace detail {

// The loop is run and measured from its start, in pieces that grow fourfold, until a piece has
// lasted long enough to tell. Whatever cannot repay a wake-up has then been done already, or is
// finished here; the rest is shared in chunks of equal work.
inline void RunMeasuredLoop(ThreadPool& pool, int64_t n, RangeFunction body) {
  constexpr uint64_t kTellingTicks = 2'000;
  constexpr double kWorthSharingTicks = 12'000;  // waking a sleeper takes about that long
  constexpr double kChunkTicks = 25'000;
  int64_t piece = 1;
  int64_t done = 0;
  uint64_t elapsed = 0;
  for (uint64_t start = Ticks();;) {
    const int64_t end = n - done > piece ? done + piece : n;
    body(done, end);
    if (end == n) return;
    piece = end - done;
    done = end;
    const uint64_t now = Ticks();
    elapsed = now - start;
    if (elapsed >= kTellingTicks) break;
    start = now;
    if (piece <= n / 4) piece *= 4;
  }
  const double index_ticks = static_cast<double>(elapsed) / static_cast<double>(piece);
  const int64_t rest = n - done;
  if (index_ticks * static_cast<double>(rest) < kWorthSharingTicks) return body(done, n);
  // At least four chunks a thread, so that the threads end together.
  const int64_t most = (rest - 1) / (int64_t{4} * pool.threads()) + 1;
  const double wanted = kChunkTicks / index_ticks;
  const int64_t grain = wanted < 1                           ? 1
                        : wanted > static_cast<double>(most) ? most
                                                             : static_cast<int64_t>(wanted);
  pool.RunLoop(done, n, grain, body);
}

// Who runs this thread's loops instead of its pool: in a library the threads are its host's.
struct LoopRunner {
  void (*run)(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body);
};
OPKIT_IMAGE_LOCAL inline constinit thread_local const LoopRunner* t_loop_runner = nullptr;

class OPKIT_IMAGE_LOCAL LoopRunnerScope {
 public:
  explicit LoopRunnerScope(const LoopRunner* runner)
      : outer_(std::exchange(t_loop_runner, runner)) {}
  LoopRunnerScope(const LoopRunnerScope&) = delete;
  LoopRunnerScope& operator=(const LoopRunnerScope&) = delete;
  ~LoopRunnerScope() { t_loop_runner = outer_; }

 private:
  const LoopRunner* outer_;
};

OPKIT_IMAGE_LOCAL inline void RunParallel(int64_t n, int64_t grain, RangeFunction body) {
  if (t_loop_runner) [[unlikely]]
    return t_loop_runner->run(*t_loop_runner, n, grain, body);
  ThreadPool& pool = ThreadPool::Current();
  if (grain > 0) {
    pool.RunLoop(0, n, grain, body);
  } else if (pool.threads() == 1 || n == 1) {
    body(0, n);
  } else {
    RunMeasuredLoop(pool, n, body);
  }
}

}  // namespace detail

// Calls f(begin, end) so that the ranges make up [0, n) and each index is in one of them. With a
// positive grain the ranges are [k * grain, (k + 1) * grain), the last one shorter, whatever the
// number of threads is, so partial results by range are reproducible; with kAutoGrain they depend
// on how long the body takes. The ranges run in any order and at the same time, under the caller's
// invocation, on the current pool's idle workers and this thread, which runs nothing else
// meanwhile.
//
// Returns when all ranges have ended. If one throws, those not yet begun are skipped and the first
// exception is rethrown here. Loops may be nested to any depth.
template <class F>
void ParallelForRange(int64_t n, int64_t grain, F&& f) {
  static_assert(RangeBody<F>,
                "ParallelForRange: the body must be callable as f(int64_t begin, int64_t end)");
  if (n <= 0) return;
  if (n <= grain) {
    f(int64_t{0}, n);
    return;
  }
  detail::RunParallel(n, grain, f);
}

// f(i) for every i in [0, n). `grain`: how many indices make a chunk worth handing to another
// thread (10 us of work is; a loop with n <= grain is a plain loop, at no cost); kAutoGrain
// measures, which costs 40 to 80 ns a call, and fits unless the first indices are much cheaper than
// the rest.
//
//   opkit::ParallelFor(rows, [&](int64_t row) { Softmax(x + row * columns, columns); });
template <class F>
void ParallelFor(int64_t n, F&& f, int64_t grain = kAutoGrain) {
  static_assert(IndexBody<F>, "ParallelFor: the body must be callable as f(int64_t index)");
  using Body = std::remove_cvref_t<F>;
  ParallelForRange(n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int64_t>) {
      // A copy on the stack keeps what the body captured in registers: the compiler knows that the
      // body's stores do not change it.
      const Body body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_PARALLEL_FOR_HPP_
