// The definitions of opkit/engine/dependency/operation.hpp.
#ifndef OPKIT_ENGINE_DEPENDENCY_IMPL_OPERATION_IPP_
#define OPKIT_ENGINE_DEPENDENCY_IMPL_OPERATION_IPP_

#include "opkit/base/error.hpp"
#include "opkit/engine/dependency/operation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE Completion& Completion::operator=(Completion&& other) noexcept {
  Completion taken(std::move(other));
  std::swap(engine_, taken.engine_);
  std::swap(op_, taken.op_);
  std::swap(generation_, taken.generation_);
  return *this;  // the destructor of `taken` fails the operation that *this held before
}

OPKIT_INLINE void Completion::Drop() {
  SetFinishedWithException(std::make_exception_ptr(
      Error(ErrorCode::kFailedPrecondition,
            "expected the asynchronous operation to be completed, found its Completion dropped; "
            "keep the handle until SetFinished is called")));
}

OPKIT_INLINE bool Completion::SetFinishedWithException(std::exception_ptr exception) {
  if (!engine_)
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Completion that was not used yet, found an empty one; an operation is "
          "completed once");
  const auto engine = std::move(engine_);
  return engine->CompleteAsync(op_, generation_, std::move(exception));
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_IMPL_OPERATION_IPP_
