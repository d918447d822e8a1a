// What the threads of a pool do besides their tasks, told to a profile that asks for it.
#ifndef OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_
#define OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_

#include "opkit/device/invocation.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline SpanSink* EngineSink() {
  SpanSink* const sink = CurrentSpanSink();
  return sink && sink->WantsEngine() ? sink : nullptr;
}

// A span of the thread, for the scope's life.
class EngineScope {
 public:
  explicit EngineScope(const char* name)
      : scope_(EngineSink() ? InvocationScope(InvocationKind::kEngine,
                                              [&] { return SpanNames{InternName(name)}; })
                            : InvocationScope::Adopt(CurrentInvocation())) {}

 private:
  InvocationScope scope_;
};

// Something that happens at once.
inline void MarkEngine(const char* name) {
  if (SpanSink* sink = EngineSink()) [[unlikely]]
    sink->Marked(InternName(name));
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_
