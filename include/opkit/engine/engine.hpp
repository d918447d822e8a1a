// Engine: runs closures as soon as the closures that they depend on are done, on the threads of a
// pool. A push names the Vars that its closure reads and writes; everything else follows from the
// order of pushes. For graphs that are known beforehand, the executor does the same at lower cost.
#ifndef OPKIT_ENGINE_ENGINE_HPP_
#define OPKIT_ENGINE_ENGINE_HPP_

#include <memory>

#include "opkit/base/timeout.hpp"
#include "opkit/engine/dependency/engine_device.hpp"
#include "opkit/engine/dependency/operation.hpp"
#include "opkit/engine/dependency/var.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ThreadPool;

// The options of an Engine.
struct EngineOptions {
  int threads = 0;     // 0: the process's pool, else a pool of the engine's own
  bool naive = false;  // the same as OPKIT_ENGINE=naive in the environment
};

//   opkit::Engine engine({.threads = 2});
//   opkit::Var x = engine.NewVar(), y = engine.NewVar();
//   engine.Push([&] { Fill(a); }, {}, {x});
//   engine.Push([&] { Double(a, b); }, {x}, {y}, {.name = "double"});
//   engine.WaitForVar(y);
//
// Operations that share a Var run in push order, except that reads of it may overlap; all others in
// any order, the highest priority first among those that are ready. Operations may push. Pushing
// and completing an empty operation costs some 100 ns. Once the engine is warm it allocates nothing
// (closures up to 64 bytes, asynchronous operations too).
//
// An exception of a closure, of whatever type, is kept in the Vars that it writes. Operations that
// read such a Var are skipped and the Vars that they write fail alike. A later write that succeeds
// makes a Var valid again. The exception is rethrown once: by WaitForVar of any Var that holds it,
// or by WaitForAll, which rethrows the one whose operation was pushed first; then all Vars are as
// if nothing had happened.
//
// A naive engine runs every operation inside the Push, in push order, and ignores priorities: the
// same program with the same results and errors, for debugging. An asynchronous operation is
// started there; operations that depend on it run where it is completed.
//
// All members are thread-safe except the destructor. The engine belongs to the process that made
// it: a forked child may destroy it, which does nothing there, and use it for nothing else.
class Engine {
 public:
  // Errors (kInvalidArgument): a number of threads that a pool cannot have; an OPKIT_ENGINE that is
  // neither "naive" nor "threaded".
  explicit Engine(EngineOptions options = {});
  Engine(Engine&&) = delete;
  // Waits for everything that can still run. Asynchronous operations that are not completed by then
  // fail as cancelled; failures that no wait has rethrown are dropped.
  ~Engine();

  // True if every operation runs inside its Push.
  bool naive() const;

  // Makes a variable of this engine; DeleteVar frees it, or the engine's destructor.
  Var NewVar();
  // Makes all handles of the Var invalid at once. Operations that were pushed with it still run,
  // and WaitForAll still rethrows their failures.
  void DeleteVar(Var var);
  // Counts the writes of the Var that have ended, failed and skipped ones included. What they wrote
  // is visible to the caller.
  uint64_t Version(Var var) const;

  // Runs `fn()` after the operations that it depends on. Reads and writes are lists like {x, y} or
  // vectors; a Var twice in one of them counts once. With a device, `fn` is issued on a stream of
  // it and the operation is done when the stream is; copies (OpKind::kCopy) have a stream of their
  // own. Errors: a Var in both lists, deleted, empty or of another engine; a device that the engine
  // does not know.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
  void Push(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    PushClosure<false>(std::forward<F>(fn), reads, writes, options);
  }

  // Runs an operator, under its type's name unless the options give one. An operator with an
  // asynchronous part is done when its event is. The operator must live until then.
  //
  //   engine.Push(*op, {x}, {y});
  template <class Op>
    requires requires(Op& op) {
      op.RunAsync();
      op.HasAsyncPart();
      op.event().exception();
    }
  void Push(Op& op, VarList reads, VarList writes, PushOptions options = {}) {
    if (!*options.name) options.name = op.type().c_str();
    if (!op.HasAsyncPart()) return Push([&op] { op.Run(); }, reads, writes, options);
    PushAsync(
        [&op](Completion done) {
          op.RunAsync();
          op.event().SetCallback([&op, done = std::move(done)]() mutable {
            done.SetFinishedWithException(op.event().exception());
          });
        },
        reads, writes, options);
  }

  // Runs `fn(Completion)`; the operation is done when that handle completes it. Error
  // (kInvalidArgument) with a device.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, Completion>
  void PushAsync(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    PushClosure<true>(std::forward<F>(fn), reads, writes, options);
  }

  // Returns when all writes of the Var that were pushed before are done, and rethrows their
  // failure. Meanwhile the thread runs operations, so do not hold a lock that one of them takes. An
  // operation may wait, too, but not for itself. Error (kDeadlineExceeded) if `timeout` ran out.
  void WaitForVar(Var var, Timeout timeout = {});
  // Returns when no operation is pending, operations that are pushed meanwhile included. Must not
  // be called inside an operation.
  void WaitForAll(Timeout timeout = {});

  // Fails all operations pushed so far that have not started, and asynchronous ones that are not
  // completed, with kCancelled. Running operations and work that a device has begun go on; a late
  // Completion has no effect. Does not wait.
  void Cancel();

 private:
  // A push calls Prepare, makes the closure, and calls Submit; or Abandon if the closure cannot be
  // made. Prepare and Submit throw for the caller's errors, and then nothing is changed.
  detail::OpSlot Prepare(VarList reads, VarList writes, const PushOptions& options,
                         const detail::OpClosureType& closure);
  void Submit(detail::EngineOp* op);
  OPKIT_COLD void Abandon(detail::EngineOp* op);

  template <bool kAsynchronous, class F>
  void PushClosure(F&& fn, VarList reads, VarList writes, const PushOptions& options) {
    using Closure = std::decay_t<F>;
    using OpClosure = detail::OpClosure<Closure, kAsynchronous>;
    if constexpr (OpClosure::kFits) {
      const detail::OpSlot slot = Prepare(reads, writes, options, OpClosure::kType);
      try {
        ::new (slot.storage) Closure(std::forward<F>(fn));
      } catch (...) {
        Abandon(slot.op);
        throw;
      }
      Submit(slot.op);
    } else {
      PushClosure<kAsynchronous>([fn = std::make_unique<Closure>(std::forward<F>(fn))](
                                     auto&&... completion) { (*fn)(std::move(completion)...); },
                                 reads, writes, options);
    }
  }

  const int process_;  // the process that made the engine
  std::unique_ptr<ThreadPool> pool_;
  const detail::IntrusivePtr<detail::EngineCore> core_;
};

// An Engine without threads, for debugging. Every Engine of a program is naive if the environment
// has OPKIT_ENGINE=naive.
class NaiveEngine : public Engine {
 public:
  NaiveEngine() : Engine({.threads = 0, .naive = true}) {}
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/impl/engine.ipp"
#endif

#endif  // OPKIT_ENGINE_ENGINE_HPP_
