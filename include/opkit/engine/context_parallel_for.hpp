// ParallelFor(ctx, n, f): one loop for every device. On a host context it is ParallelFor on the
// thread pool, issued through the context; a device's backend adds the overload that launches a
// kernel.
#ifndef OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

#include <utility>

#include "opkit/device/context.hpp"
#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Issues f(i) for every i in [0, n). Errors of `f` reach the caller, or the operator's event.
//
// On an asynchronous context `f` runs after this function has returned, so it must capture by
// value. With [&] it reads variables that no longer exist: no compiler reports that, and it ends in
// garbage or a crash (CheckOperator finds both). On a CPU stream `f` may own its data: a
// std::vector, a std::shared_ptr or std::unique_ptr captured by value lives until the stream has
// run the loop. On CUDA `f` is copied byte by byte, so it must be trivially copyable.
//
//   ParallelFor(ctx, n, [=] OPKIT_DEVICE (int64_t i) { y[i] = 2 * x[i]; });
template <detail::HostContext Context, class F>
void ParallelFor(Context& context, int64_t n, F f, int64_t grain = kAutoGrain) {
#ifdef OPKIT_DEVICE_COMPILER
  static_assert(!__nv_is_extended_device_lambda_closure_type(F),
                "ParallelFor: this lambda is for the device only and would do nothing on a host "
                "context; compile the CPU kernel in a .cc file, or pass a struct with an "
                "OPKIT_HOST_DEVICE call operator");
#endif
  if constexpr (!Context::kAsynchronous)
    ParallelFor(n, f, grain);
  else
    context.Launch([n, f = std::move(f), grain]() mutable { ParallelFor(n, f, grain); });
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_
