// How a parallel loop chooses its chunks, and the threads that run them.
#ifndef OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_
#define OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_

#include <algorithm>
#include <exception>

#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Runs the loop from its start, in pieces that grow fourfold, until one piece lasts long enough to
// be measured. A loop too short to repay a wake-up ends here; the rest of a longer loop is shared
// in chunks of equal work.
template <class RunLoop>
void RunMeasuredLoop(int threads, int64_t n, RangeFunction body, RunLoop run_loop) {
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
  const int64_t most = (rest - 1) / (int64_t{4} * threads) + 1;
  const double wanted = kChunkTicks / index_ticks;
  const int64_t grain = wanted < 1                           ? 1
                        : wanted > static_cast<double>(most) ? most
                                                             : static_cast<int64_t>(wanted);
  run_loop(done, n, grain);
}

inline void RunInPlace(const LoopRunner&, int64_t n, int64_t grain, RangeFunction body) {
  RunChunksInOrder(0, n, grain > 0 ? grain : n, body);
}
inline constexpr LoopRunner kInPlace{&RunInPlace};

// Runs the loop's chunks by one call of `work` for each thread. Each call takes the next chunk that
// is left, so a call may begin late, or after the others have ended.
inline void RunOnForeignThreads(int threads, CallOnThreads run, int64_t first, int64_t last,
                                int64_t grain, RangeFunction body) {
  const int64_t chunks = (last - first - 1) / grain + 1;
  const auto count = static_cast<int>((std::min)(chunks, int64_t{threads}));
  ParallelLoop loop(first, last, grain, chunks, body);
  Mutex mutex;
  const auto work = [&] {
    const auto invocation = InvocationScope::Adopt(loop.invocation);
    const ScopedValue nested(t_loop_runner, &kInPlace);
    loop.RunChunks(mutex);
  };
  run(count, work);
  if (loop.error) std::rethrow_exception(loop.error);
}
OPKIT_COLD inline void RunParallelOn(int threads, CallOnThreads run, int64_t n, int64_t grain,
                                     RangeFunction body) {
  if (threads == 1 || n == 1) return RunInPlace(kInPlace, n, grain, body);
  if (grain > 0) return RunOnForeignThreads(threads, run, 0, n, grain, body);
  RunMeasuredLoop(threads, n, body, [&](int64_t first, int64_t last, int64_t measured) {
    RunOnForeignThreads(threads, run, first, last, measured, body);
  });
}
OPKIT_COLD OPKIT_INLINE void LoopsOnHost::Run(const LoopRunner& self, int64_t n, int64_t grain,
                                              RangeFunction body) {
  const auto& host = static_cast<const LoopsOnHost&>(self);
  RunParallelOn(host.threads_, host.run_, n, grain, body);
}

OPKIT_INLINE void RunParallel(int64_t n, int64_t grain, RangeFunction body) {
  if (t_loop_runner) [[unlikely]]
    return t_loop_runner->run(*t_loop_runner, n, grain, body);
  if (const OwnThreads* own = CurrentOwnThreads()) [[unlikely]]
    return RunParallelOn(own->threads, own->run, n, grain, body);
  ThreadPool& pool = ThreadPool::Current();
  if (grain > 0) return pool.RunLoop(0, n, grain, body);
  if (pool.threads() == 1 || n == 1) return body(0, n);
  RunMeasuredLoop(pool.threads(), n, body, [&](int64_t first, int64_t last, int64_t measured) {
    pool.RunLoop(first, last, measured, body);
  });
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE void SetParallelFor(int threads, detail::RunOnThreads run) {
  if (run && (threads < 1 || threads > ThreadPool::kMaxThreads))
    Throw(ErrorCode::kInvalidArgument, "SetParallelFor with ", threads, " threads; expected 1 to ",
          int{ThreadPool::kMaxThreads});
  static constinit detail::Mutex mutex;
  detail::MutexLock lock(mutex);
  ThreadPool& pool = ThreadPool::Global();
  const detail::OwnThreads* const before = detail::g_own_threads.load();
  const int pool_threads = before ? before->pool_threads : pool.threads();
  const detail::OwnThreads* const now =
      run ? new detail::OwnThreads{threads, std::move(run), pool_threads} : nullptr;
  pool.Resize(now ? 1 : pool_threads);
  detail::g_own_threads.store(now, std::memory_order_release);
  delete before;
}
}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_
