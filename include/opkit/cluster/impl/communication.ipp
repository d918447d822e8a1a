// Definitions of Communication's members.
#ifndef OPKIT_CLUSTER_IMPL_COMMUNICATION_IPP_
#define OPKIT_CLUSTER_IMPL_COMMUNICATION_IPP_

#include <utility>

#include "opkit/base/index.hpp"
#include "opkit/cluster/communication.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The calls of Communication::Finish that the thread is in.
inline int& FinishDepth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace detail

OPKIT_INLINE std::string_view ToString(CommunicationKind kind) {
  constexpr std::string_view kNames[] = {"Send",      "Recv",      "AllReduce", "Reduce",
                                         "Broadcast", "AllGather", "Gather",    "ReduceScatter",
                                         "Scatter",   "AllToAll",  "Barrier"};
  return kNames[detail::Index(static_cast<int>(kind))];
}
OPKIT_INLINE std::string_view ToString(Reduction reduction) {
  constexpr std::string_view kNames[] = {"sum", "product", "max", "min"};
  return kNames[detail::Index(static_cast<int>(reduction))];
}

OPKIT_INLINE void Communication::Begin(detail::IntrusivePtr<EventState> event,
                                       UniqueFunction<void()> finisher) {
  event_ = std::move(event);
  finisher_ = std::move(finisher);
  is_pending_.store(true, std::memory_order_relaxed);  // Start publishes it with the communication
}
OPKIT_INLINE void* Communication::Allocate(DType arrived, const Shape& arrived_shape) {
  received = detail::OutputTensor(std::move(received), arrived_shape, arrived, Device{},
                                  [](const Tensor&) { return false; });
  Keep(received);
  return received.raw_mutable_data();
}
OPKIT_INLINE void Communication::Record() const noexcept {
  if (invocation != 0 && detail::g_record_message) detail::g_record_message(invocation, message);
}
OPKIT_INLINE void Communication::Finish(std::exception_ptr error) {
  try {
    if (!error && finisher_) finisher_();
  } catch (...) {
    error = std::current_exception();
  }
  if (!error) Record();
  finisher_ = nullptr;
  buffers_.clear();
  const detail::IntrusivePtr<EventState> event = std::move(event_);
  is_pending_.store(false, std::memory_order_release);
  // A cancelled event has failed already and stays so.
  if (!event) return;
  ++detail::FinishDepth();
  event->Complete(std::move(error));
  --detail::FinishDepth();
}
OPKIT_INLINE bool Communication::IsFinishing() { return detail::FinishDepth() > 0; }

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_COMMUNICATION_IPP_
