// Engine: runs closures as soon as what they depend on is done, on the threads of a pool. Who
// pushes says which Vars a closure reads and writes; everything else follows from the order of
// pushes. For graphs that are known beforehand, the executor does the same for less.
#ifndef OPKIT_ENGINE_ENGINE_HPP_
#define OPKIT_ENGINE_ENGINE_HPP_

#include <memory>
#include <string_view>

#include "opkit/engine/dependency/engine_wait.hpp"

namespace opkit::inline OPKIT_ABI {

struct EngineOptions {
  int threads = 0;     // 0: the process's pool, else a pool of the engine's own
  bool naive = false;  // as if the environment had OPKIT_ENGINE=naive
};

//   opkit::Engine engine({.threads = 2});
//   opkit::Var x = engine.NewVar(), y = engine.NewVar();
//   engine.Push([&] { Fill(a); }, {}, {x});
//   engine.Push([&] { Double(a, b); }, {x}, {y}, {.name = "double"});
//   engine.WaitForVar(y);
//
// Operations that share a Var run in push order, except that reads of it may overlap; all others in
// any order, the highest priority first among those that are ready. Operations may push. Pushing
// and completing an empty operation costs some 100 ns and allocates nothing once the engine is warm
// (closures up to 64 bytes, asynchronous operations too).
//
// What a closure throws, of whatever type, is kept in the Vars that it writes. Operations that read
// such a Var are skipped and what they write fails alike. A later write that succeeds makes a Var
// valid again. The exception is rethrown once: by WaitForVar of any Var that holds it, or, the one
// whose operation was pushed first, by WaitForAll; then all Vars are as if nothing had happened.
//
// A naive engine runs every operation inside the Push, in push order, and ignores priorities: the
// same program with the same results and errors, for debugging. An asynchronous operation is
// started there; what depends on it runs where it is completed.
//
// All members are thread-safe except the destructor. The engine belongs to the process that made
// it: a forked child may destroy it, which does nothing there, and use it for nothing else.
template <class Core>
class BasicEngine {
 public:
  // Errors (kInvalidArgument): a number of threads that a pool cannot have; an OPKIT_ENGINE that is
  // neither "naive" nor "threaded".
  explicit BasicEngine(EngineOptions options = {})
      : process_(getpid()), pool_(MakePool(options)), core_(MakeCore(options, pool_.get())) {}
  BasicEngine(const BasicEngine&) = delete;
  BasicEngine& operator=(const BasicEngine&) = delete;
  // Waits for everything that can still run. Asynchronous operations that are not completed by then
  // fail as cancelled; failures that nobody waited for are dropped.
  ~BasicEngine() {
    if (getpid() != process_) {
      static_cast<void>(pool_.release());
      static_cast<void>(new detail::IntrusivePtr<Core>(core_));
      return;
    }
    core_->Shutdown();
  }

  bool naive() const { return core_->naive(); }

  Var NewVar() { return core_->NewVar(); }
  // Its handles are invalid at once; operations that were pushed with it still run, and what failed
  // in it is still rethrown by WaitForAll.
  void DeleteVar(Var var) { core_->DeleteVar(var); }
  // Writes of the Var that have ended, failed and skipped ones included. What they wrote is visible
  // to the caller.
  uint64_t Version(Var var) const { return core_->Version(var); }

  // Runs `fn()` after the operations that it depends on. Reads and writes are lists like {x, y} or
  // vectors; a Var twice in one of them counts once. With a device, `fn` is issued on a stream of
  // it and the operation is done when the stream is; copies (kind) have another stream. Errors: a
  // Var in both lists, deleted, empty or of another engine; a device that the engine does not know.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
  void Push(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    Submit<void>(std::forward<F>(fn), core_->Prepare(reads, writes, options));
  }

  // Runs `fn(Completion)`; the operation is done when the handle says so.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, Completion>
  void PushAsync(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    if (options.device.type != DeviceType::kCPU) {
      Throw(ErrorCode::kInvalidArgument,
            "expected PushAsync without a device, which completes operations by itself; found ",
            ToString(options.device), ": use Push");
    }
    auto* op = core_->Prepare(reads, writes, options);
    op->mode = detail::OpMode::kAsynchronous;
    Submit<Completion>(std::forward<F>(fn), op);
  }

  // Returns when all writes of the Var that were pushed before are done, and rethrows what failed.
  // Meanwhile the thread runs operations, so do not hold a lock that one of them takes. An
  // operation may wait, too, but not for itself. Error (kDeadlineExceeded) where `timeout` ran out.
  void WaitForVar(Var var, Timeout timeout = {}) { core_->WaitForVar(var, timeout); }
  // Returns when no operation is pending, those included that are pushed meanwhile. Not inside an
  // operation.
  void WaitForAll(Timeout timeout = {}) { core_->WaitForAll(timeout); }

  // Fails all operations pushed so far that have not started, and asynchronous ones that are not
  // completed, with kCancelled. What runs, runs on, as does what a device has begun; what a late
  // Completion says is ignored. Does not wait.
  void Cancel() { core_->Cancel(); }

 private:
  using Pool = typename Core::Pool;

  static bool IsNaive(const EngineOptions& options) {
    const char* text = std::getenv("OPKIT_ENGINE");
    const std::string_view chosen = text != nullptr ? text : "";
    if (chosen != "" && chosen != "naive" && chosen != "threaded") {
      Throw(ErrorCode::kInvalidArgument,
            "expected the environment variable OPKIT_ENGINE to be naive or threaded, found \"",
            chosen, "\"; correct it or unset it");
    }
    return options.naive || chosen == "naive";
  }
  static std::unique_ptr<Pool> MakePool(const EngineOptions& options) {
    if (options.threads == 0 || IsNaive(options)) return nullptr;
    return std::make_unique<Pool>(options.threads, "engine");
  }
  static detail::IntrusivePtr<Core> MakeCore(const EngineOptions& options, ThreadPool* pool) {
    static constinit std::atomic<uint32_t> engines{0};
    // Relaxed: only the uniqueness of the number matters.
    const uint32_t id = engines.fetch_add(1, std::memory_order_relaxed) + 1;
    if (pool == nullptr && !IsNaive(options)) pool = &ThreadPool::Default();
    return detail::MakeIntrusive<Core>(pool, id);
  }

  template <class Argument, class F>
  void Submit(F&& fn, typename Core::EngineOp* op) {
    try {
      op->template SetClosure<Argument>(std::forward<F>(fn));
    } catch (...) {
      core_->Abandon(op);
      throw;
    }
    core_->Submit(op);
  }

  const pid_t process_;
  std::unique_ptr<Pool> pool_;
  const detail::IntrusivePtr<Core> core_;
};
using Engine = BasicEngine<detail::EngineCore>;

}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_HPP_
