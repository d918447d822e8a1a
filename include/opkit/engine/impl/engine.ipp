// The definitions of opkit/engine/engine.hpp: the choice of an engine's threads, and the calls of
// its core.
#ifndef OPKIT_ENGINE_IMPL_ENGINE_IPP_
#define OPKIT_ENGINE_IMPL_ENGINE_IPP_

#include <cstdlib>
#include <string_view>

#include "opkit/engine/dependency/impl/engine_core.ipp"
#include "opkit/engine/dependency/impl/engine_run.ipp"
#include "opkit/engine/engine.hpp"
#include "opkit/engine/pool/engine_scope.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline bool IsNaive(const EngineOptions& options) {
  const char* text = std::getenv("OPKIT_ENGINE");
  const std::string_view chosen = text ? text : "";
  if (chosen != "" && chosen != "naive" && chosen != "threaded")
    Throw(ErrorCode::kInvalidArgument,
          "expected the environment variable OPKIT_ENGINE to be naive or threaded, found \"",
          chosen, "\"; correct it or unset it");
  return options.naive || chosen == "naive";
}

inline IntrusivePtr<EngineCore> MakeEngineCore(const EngineOptions& options, ThreadPool* own_pool) {
  static constinit std::atomic<uint32_t> engines{0};
  // Relaxed: only the uniqueness of the number matters.
  const uint32_t id = engines.fetch_add(1, std::memory_order_relaxed) + 1;
  ThreadPool& pool = own_pool ? *own_pool : ThreadPool::Global();
  return MakeIntrusive<EngineCore>(pool, IsNaive(options), id);
}

}  // namespace detail

OPKIT_INLINE Engine::Engine(EngineOptions options)
    : process_(getpid()),
      pool_(options.threads == 0 || detail::IsNaive(options)
                ? nullptr
                : std::make_unique<ThreadPool>(options.threads, "engine")),
      core_(detail::MakeEngineCore(options, pool_.get())) {}

OPKIT_INLINE Engine::~Engine() {
  if (getpid() == process_) {
    core_->Shutdown();
  } else {
    static_cast<void>(pool_.release());
    static_cast<void>(new detail::IntrusivePtr<detail::EngineCore>(core_));
  }
}

OPKIT_INLINE bool Engine::naive() const { return core_->naive(); }
OPKIT_INLINE Var Engine::NewVar() { return core_->NewVar(); }
OPKIT_INLINE void Engine::DeleteVar(Var var) { core_->DeleteVar(var); }
OPKIT_INLINE uint64_t Engine::Version(Var var) const { return core_->Version(var); }
OPKIT_INLINE void Engine::WaitForVar(Var var, Timeout timeout) { core_->WaitForVar(var, timeout); }
OPKIT_INLINE void Engine::WaitForAll(Timeout timeout) {
  const detail::EngineScope scope("drain");
  core_->WaitForAll(timeout);
}
OPKIT_INLINE void Engine::Cancel() { core_->Cancel(); }

OPKIT_INLINE detail::OpSlot Engine::Prepare(VarList reads, VarList writes,
                                            const PushOptions& options,
                                            const detail::OpClosureType& closure) {
  return core_->Prepare(reads, writes, options, closure);
}
OPKIT_INLINE void Engine::Submit(detail::EngineOp* op) { core_->Submit(op); }
OPKIT_INLINE void Engine::Abandon(detail::EngineOp* op) { core_->Abandon(op); }

}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_ENGINE_IPP_
