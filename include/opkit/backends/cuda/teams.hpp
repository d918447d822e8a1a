// ParallelForTeams: a loop on the device whose iterations are shared by teams of threads. An
// iteration computes a row: its threads read the row together and combine sums.
#ifndef OPKIT_BACKENDS_CUDA_TEAMS_HPP_
#define OPKIT_BACKENDS_CUDA_TEAMS_HPP_

#include "opkit/backends/cuda/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The threads of one iteration: a warp of 32, or a block. All of them call every member, in the
// same order. On a host the team is one thread.
template <int kThreads>
class CUDATeam {
 public:
  OPKIT_DEVICE explicit CUDATeam(int thread) : thread_(thread) {}

  // True in one thread of the team.
  OPKIT_DEVICE bool is_first() const { return thread_ == 0; }
  // Calls f(i) for every i in [0, n), each in one thread. Thread t takes t, t + kThreads, and so
  // on, so that neighbouring threads read neighbouring elements.
  template <class F>
  OPKIT_DEVICE void Each(int64_t n, F f) const {
    for (int64_t i = thread_; i < n; i += kThreads) f(i);
  }
  // Returns combine(…) over the values of all threads, in every thread. The order depends on
  // kThreads alone, so a sum of floats is the same in each run. At most 16 bytes.
  template <class T, class F>
  OPKIT_DEVICE T Combine(T mine, [[maybe_unused]] F combine) const {
#ifdef OPKIT_DEVICE_COMPILER
    for (int other = 1; other < (kThreads < 32 ? kThreads : 32); other *= 2)
      mine = combine(mine, Exchange(mine, other));
    if constexpr (kThreads > 32) {
      __shared__ alignas(16) unsigned char shared[kThreads / 32 * 16];
      T* const of_warps = reinterpret_cast<T*>(shared);
      static_assert(sizeof(T) <= 16);
      if (thread_ % 32 == 0) of_warps[thread_ / 32] = mine;
      __syncthreads();
      mine = of_warps[0];
      for (int warp = 1; warp < kThreads / 32; ++warp) mine = combine(mine, of_warps[warp]);
      __syncthreads();  // before the next call writes
    }
#endif
    return mine;
  }
  template <class T>
  OPKIT_DEVICE T Sum(T mine) const {
    return Combine(mine, [](T a, T b) { return a + b; });
  }
  // Makes the elements that the team's threads have written visible to all of them.
  OPKIT_DEVICE void Sync() const {
#ifdef OPKIT_DEVICE_COMPILER
    if constexpr (kThreads > 32)
      __syncthreads();
    else
      __syncwarp();
#endif
  }

 private:
#ifdef OPKIT_DEVICE_COMPILER
  // Returns the value of the thread of this warp whose number differs in the bit `other`.
  template <class T>
  static __device__ T Exchange(T mine, int other) {
    static_assert(sizeof(T) % 4 == 0);
    int words[sizeof(T) / 4];
    memcpy(words, &mine, sizeof(T));
    for (int& word : words) word = __shfl_xor_sync(0xffffffff, word, other);
    memcpy(&mine, words, sizeof(T));
    return mine;
  }
#endif

  const int thread_;
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
template <int kThreads, class F>
void LaunchTeams(CUDAContext& context, int64_t n, F f) {
  constexpr int64_t kTeams = kCUDABlock / kThreads;
  const int64_t wanted = (n - 1) / kTeams + 1, limit = CUDABlockLimit(context.device().index);
  const auto blocks = static_cast<unsigned>(wanted < limit ? wanted : limit);
  TeamLoop<kThreads><<<blocks, kCUDABlock, 0, context.cuda_stream()>>>(n, f);
  CheckCUDALaunches();
}

}  // namespace detail

// Issues f(i, team) for every i in [0, n) and returns; costs a kernel launch. `f` is a trivially
// copyable struct whose operator() is OPKIT_DEVICE and takes any CUDATeam. `work` is the number of
// elements that an iteration visits: few elements get a warp, more get a block. Throws the error of
// the launch.
template <class F>
void ParallelForTeams(CUDAContext& context, int64_t n, int64_t work, F f) {
  static_assert(std::is_trivially_copyable_v<F>);
  constexpr int64_t kWorkOfWarp = 1024;
  if (n <= 0) return;
  if (work <= kWorkOfWarp)
    detail::LaunchTeams<32>(context, n, f);
  else
    detail::LaunchTeams<detail::kCUDABlock>(context, n, f);
}

#elif defined(OPKIT_CUDA_EMULATION)

template <class F>
void ParallelForTeams(CUDAContext& context, int64_t n, int64_t /*work*/, F f) {
  static_assert(std::is_trivially_copyable_v<F>);
  ParallelFor(context, n, [f](int64_t i) { f(i, CUDATeam<1>(0)); });
}

#endif  // OPKIT_DEVICE_COMPILER

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_TEAMS_HPP_
