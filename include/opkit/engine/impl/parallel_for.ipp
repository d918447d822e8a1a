// How a parallel loop chooses its chunks, and the threads that run them.
#ifndef OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_
#define OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_

#include "opkit/engine/parallel_for.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Runs and measures the loop from its start, in pieces that grow fourfold, until a piece has lasted
// long enough to tell. A loop too short to repay a wake-up has then ended already, or is ended
// here; the rest of others is shared in chunks of equal work.
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

OPKIT_INLINE void RunParallel(int64_t n, int64_t grain, RangeFunction body) {
  if (t_loop_runner) [[unlikely]]
    return t_loop_runner->run(*t_loop_runner, n, grain, body);
  ThreadPool& pool = ThreadPool::Current();
  if (grain > 0) return pool.RunLoop(0, n, grain, body);
  if (pool.threads() == 1 || n == 1) return body(0, n);
  RunMeasuredLoop(pool, n, body);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_
