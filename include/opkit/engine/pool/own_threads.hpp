// OwnThreads: threads of the program's own, on which loops run in place of the process's pool. Set
// by SetParallelFor of engine/parallel_for.hpp.
#ifndef OPKIT_ENGINE_POOL_OWN_THREADS_HPP_
#define OPKIT_ENGINE_POOL_OWN_THREADS_HPP_

#include <atomic>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/unique_function.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls `work` `count` times, on all its threads at once, and returns when all calls have returned.
// `work` throws nothing. Called by several threads at once.
using RunOnThreads = UniqueFunction<void(int count, FunctionRef<void()> work)>;

// The threads given to SetParallelFor.
struct OwnThreads {
  int threads;
  mutable RunOnThreads run;
  int pool_threads;  // the size of the process's pool before SetParallelFor
};
inline constinit std::atomic<const OwnThreads*> g_own_threads{nullptr};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_OWN_THREADS_HPP_
