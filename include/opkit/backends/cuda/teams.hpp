// ParallelForTeams: a loop on the device whose iterations are shared by teams of threads. An
// iteration computes a row: its threads read the row together and combine sums.
#ifndef OPKIT_BACKENDS_CUDA_TEAMS_HPP_
#define OPKIT_BACKENDS_CUDA_TEAMS_HPP_

#ifdef OPKIT_CUDA_EMULATION
#include <barrier>
#include <thread>
#endif

#include "opkit/backends/cuda/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

#ifdef OPKIT_CUDA_EMULATION
namespace detail {

// The data that the threads of a team on the host share.
struct HostTeam {
  static constexpr int kThreads = 4;

  std::barrier<> barrier{kThreads};
  alignas(16) unsigned char values[kThreads][16];
};

}  // namespace detail
#endif

// The threads of one iteration: one thread, a warp of 32, or a block. All of them call every
// member, in the same order.
template <int kThreads>
class CUDATeam {
 public:
#ifdef OPKIT_CUDA_EMULATION
  CUDATeam(int thread, detail::HostTeam* host) : thread_(thread), host_(host) {}
#else
  OPKIT_DEVICE explicit CUDATeam(int thread) : thread_(thread) {}
#endif

  static constexpr int size() { return kThreads; }
  // The number of this thread.
  OPKIT_DEVICE int thread() const { return thread_; }
  // True in one thread of the team.
  OPKIT_DEVICE bool is_first() const { return thread_ == 0; }
  // Calls f(i) for every i in [0, n), each in one thread. Thread t takes t, t + kThreads, and so
  // on, so that neighbouring threads read neighbouring elements.
  template <class F>
  OPKIT_DEVICE void Each(int64_t n, F f) const {
    for (int64_t i = thread_; i < n; i += kThreads) f(i);
  }
  // Returns combine(…) over the values of all threads, in every thread. `combine` is commutative.
  // The order depends on kThreads alone, so a sum of floats is the same in each run. At most 16
  // bytes.
  template <class T, class F>
  OPKIT_DEVICE T Combine(T mine, [[maybe_unused]] F combine) const {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
#ifdef OPKIT_DEVICE_COMPILER
    for (int other = 1; other < (kThreads < 32 ? kThreads : 32); other *= 2)
      mine = combine(mine, Shuffled(mine, [other](int word) {
                       return __shfl_xor_sync(0xffffffff, word, other);
                     }));
    if constexpr (kThreads > 32) {
      const T* const of_warps = Share(mine);
      mine = of_warps[0];
      for (int warp = 1; warp < kThreads / 32; ++warp) mine = combine(mine, of_warps[warp]);
      __syncthreads();  // before the next call writes
    }
#elif defined(OPKIT_CUDA_EMULATION)
    if constexpr (kThreads > 1)
      WithAll(mine, [&](auto value) {
        mine = value(0);
        for (int thread = 1; thread < kThreads; ++thread) mine = combine(mine, value(thread));
      });
#endif
    return mine;
  }
  template <class T>
  OPKIT_DEVICE T Sum(T mine) const {
    return Combine(mine, [](T a, T b) { return a + b; });
  }
  // Returns combine(…) over `start` and the values of the threads before this one, in their order.
  // `combine` is associative.
  template <class T, class F>
  OPKIT_DEVICE T CombineBefore(T mine, T start, [[maybe_unused]] F combine) const {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
#ifdef OPKIT_DEVICE_COMPILER
    if constexpr (kThreads > 1) {
      const int lane = thread_ % 32;
      for (int back = 1; back < 32; back *= 2) {
        const T before =
            Shuffled(mine, [back](int word) { return __shfl_up_sync(0xffffffff, word, back); });
        if (lane >= back) mine = combine(before, mine);
      }
      // `mine` is now the value of this thread's warp up to this thread.
      T before = Shuffled(mine, [](int word) { return __shfl_up_sync(0xffffffff, word, 1); });
      if constexpr (kThreads > 32) {
        const T last = Shuffled(mine, [](int word) { return __shfl_sync(0xffffffff, word, 31); });
        const T* const of_warps = Share(last);
        for (int warp = 0; warp < thread_ / 32; ++warp) start = combine(start, of_warps[warp]);
        __syncthreads();  // before the next call writes
      }
      if (lane > 0) start = combine(start, before);
    }
#elif defined(OPKIT_CUDA_EMULATION)
    if constexpr (kThreads > 1)
      WithAll(mine, [&](auto value) {
        for (int thread = 0; thread < thread_; ++thread) start = combine(start, value(thread));
      });
#endif
    return start;
  }
  // Makes the elements that the team's threads have written visible to all of them.
  OPKIT_DEVICE void Sync() const {
#ifdef OPKIT_DEVICE_COMPILER
    if constexpr (kThreads > 32)
      __syncthreads();
    else if constexpr (kThreads > 1)
      __syncwarp();
#elif defined(OPKIT_CUDA_EMULATION)
    if constexpr (kThreads > 1) host_->barrier.arrive_and_wait();
#endif
  }

 private:
#ifdef OPKIT_DEVICE_COMPILER
  // Returns the value that another thread of this warp holds. `shuffle` moves an int between them.
  template <class T, class F>
  static __device__ T Shuffled(T mine, F shuffle) {
    int words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &mine, sizeof(T));
    for (int& word : words) word = shuffle(word);
    memcpy(&mine, words, sizeof(T));
    return mine;
  }
  // Returns the values of the first thread of each warp of the block. Valid until a later call.
  template <class T>
  __device__ const T* Share(T mine) const {
    __shared__ alignas(16) unsigned char shared[kThreads / 32 * 16];
    T* const of_warps = reinterpret_cast<T*>(shared);
    if (thread_ % 32 == 0) of_warps[thread_ / 32] = mine;
    __syncthreads();
    return of_warps;
  }
#elif defined(OPKIT_CUDA_EMULATION)
  // Calls f(value), where value(t) returns the value of thread t.
  template <class T, class F>
  void WithAll(T mine, F f) const {
    std::memcpy(host_->values[thread_], &mine, sizeof(T));
    Sync();
    f([this](int thread) {
      T value;
      std::memcpy(&value, host_->values[thread], sizeof(T));
      return value;
    });
    Sync();  // before the next call writes
  }
#endif

  const int thread_;
#ifdef OPKIT_CUDA_EMULATION
  detail::HostTeam* const host_;
#endif
};

#ifdef OPKIT_DEVICE_COMPILER

namespace detail {

// Each team takes iterations with a stride of the number of teams.
template <int kThreads, class F>
__global__ void __launch_bounds__(kCUDABlock) TeamLoop(int64_t n, F f) {
  constexpr int kTeams = kCUDABlock / kThreads;  // of a block
  const CUDATeam<kThreads> team(static_cast<int>(threadIdx.x) % kThreads);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.x / kThreads; i < n;
       i += static_cast<int64_t>(gridDim.x) * kTeams)
    f(i, team);
}
}  // namespace detail

// Issues f(i, team) for every i in [0, n), with teams of kThreads: 1, 32 or 256. Otherwise the
// same as ParallelForTeams.
template <int kThreads, class F>
void ParallelForTeamsOf(CUDAContext& context, int64_t n, F f) {
  static_assert(std::is_trivially_copyable_v<F>);
  if (n <= 0) return;
  constexpr int64_t kTeams = detail::kCUDABlock / kThreads;
  const int64_t wanted = (n - 1) / kTeams + 1,
                limit = detail::CUDABlockLimit(context.device().index);
  const auto blocks = static_cast<unsigned>(wanted < limit ? wanted : limit);
  detail::TeamLoop<kThreads><<<blocks, detail::kCUDABlock, 0, context.cuda_stream()>>>(n, f);
  detail::CheckCUDALaunches();
}

#elif defined(OPKIT_CUDA_EMULATION)

// A team of more than one thread is four threads of the host, whatever kThreads says, so that tests
// find a missing Sync.
template <int kThreads, class F>
void ParallelForTeamsOf(CUDAContext& context, int64_t n, F f) {
  static_assert(std::is_trivially_copyable_v<F>);
  if constexpr (kThreads == 1) {
    ParallelFor(context, n, [f](int64_t i) { f(i, CUDATeam<1>(0, nullptr)); });
  } else if (n > 0) {
    detail::LaunchOnHost(context.cuda_stream(), [n, f] {
      detail::HostTeam team;
      const auto run = [n, f, &team](int thread) {
        for (int64_t i = 0; i < n; ++i) f(i, CUDATeam<detail::HostTeam::kThreads>(thread, &team));
      };
      std::vector<std::jthread> others;
      for (int thread = 1; thread < detail::HostTeam::kThreads; ++thread)
        others.emplace_back(run, thread);
      run(0);
    });
  }
}

#endif  // OPKIT_DEVICE_COMPILER

#if defined(OPKIT_DEVICE_COMPILER) || defined(OPKIT_CUDA_EMULATION)

// Issues f(i, team) for every i in [0, n) and returns; costs a kernel launch. `f` is a trivially
// copyable struct whose operator() is OPKIT_DEVICE and takes any CUDATeam. `work` is the number of
// elements that an iteration visits: few elements get a warp, more get a block. Throws the error of
// the launch.
template <class F>
void ParallelForTeams(CUDAContext& context, int64_t n, int64_t work, F f) {
  constexpr int64_t kWorkOfWarp = 1024;
  if (work <= kWorkOfWarp)
    ParallelForTeamsOf<32>(context, n, f);
  else
    ParallelForTeamsOf<256>(context, n, f);
}

// The same for rows of `extent` elements, of which two neighbours are `inner` elements apart. Rows
// whose first elements are neighbours in memory get a thread each, because neighbouring threads
// then read neighbouring elements. So do very short rows.
template <class F>
void ParallelForRows(CUDAContext& context, int64_t rows, int64_t extent, int64_t inner, F f) {
  constexpr int64_t kWideInner = 32, kShortRow = 4;
  if (inner >= kWideInner || extent <= kShortRow)
    ParallelForTeamsOf<1>(context, rows, f);
  else
    ParallelForTeams(context, rows, extent, f);
}

#endif

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_TEAMS_HPP_
