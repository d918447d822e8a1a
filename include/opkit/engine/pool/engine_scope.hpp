// Spans and markers of what a pool's threads do besides their tasks (sleep, wait, steal), for
// profiles that record them.
#ifndef OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_
#define OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_

#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the current sink if it records what pool threads do, else null.
inline SpanSink* EngineSink() {
  SpanSink* const sink = CurrentSpanSink();
  return sink && sink->WantsEngine() ? sink : nullptr;
}

// Opens a span of this thread for the scope's life.
class EngineScope {
 public:
  explicit EngineScope(const char* name)
      : scope_(EngineSink() ? InvocationScope(Invocation::Kind::kEngine,
                                              [&] { return SpanNames{InternName(name)}; })
                            : InvocationScope::Adopt(CurrentInvocation())) {}

 private:
  InvocationScope scope_;
};

// Records an instant marker on this thread.
inline void MarkEngine(const char* name) {
  if (SpanSink* sink = EngineSink()) [[unlikely]]
    sink->Marked(InternName(name));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_
