// The pusher's side of an operation of the engine: its options, how its closure gets into its
// record, and the handle that completes it when it is asynchronous.
#ifndef OPKIT_ENGINE_DEPENDENCY_OPERATION_HPP_
#define OPKIT_ENGINE_DEPENDENCY_OPERATION_HPP_

#include <exception>
#include <new>

#include "opkit/base/ref_counted.hpp"
#include "opkit/core/device.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Copies have a stream of their own on every device.
enum class OpKind : uint8_t { kNormal, kCopy };

// The options of one operation that an Engine runs.
struct PushOptions {
  int priority = 0;               // ready operations of higher priority start first
  const char* name = "";          // for messages; not copied
  OpKind kind = OpKind::kNormal;  // kCopy: on the device's stream for copies
  Device device = {};             // other than the CPU: the operation is issued on its stream
  bool update = false;            // also reads the Vars that it writes: skipped if one has failed
};

namespace detail {

class EngineCore;
struct EngineOp;

// The part of an engine that Completion handles keep alive, so that a late handle is safe.
class AsyncEngine : public RefCounted {
 public:
  // Completes the operation; returns false if the handle may not complete it any more.
  virtual bool CompleteAsync(EngineOp* op, uint32_t generation, std::exception_ptr exception) = 0;
};

}  // namespace detail

// Completes an asynchronous operation: once, on any thread, at any time. Can be moved, not copied.
// A handle that is destroyed unused fails its operation. A handle may outlive the engine.
class Completion {
 public:
  Completion() = default;
  Completion(Completion&&) = default;
  Completion& operator=(Completion&& other) noexcept;
  ~Completion() {
    if (engine_) Drop();
  }

  explicit operator bool() const { return static_cast<bool>(engine_); }  // false once it was used

  // Completes the operation; returns false, without effect, if it was cancelled meanwhile. Error
  // (kFailedPrecondition) for a handle that was used already.
  bool SetFinished() { return SetFinishedWithException(nullptr); }
  // Fails the operation with the exception; finishes it when that is null.
  bool SetFinishedWithException(std::exception_ptr exception);

 private:
  friend class detail::EngineCore;
  Completion(detail::AsyncEngine* engine, detail::EngineOp* op, uint32_t generation)
      : engine_(engine), op_(op), generation_(generation) {}

  OPKIT_COLD void Drop();

  detail::IntrusivePtr<detail::AsyncEngine> engine_;
  detail::EngineOp* op_ = nullptr;
  uint32_t generation_ = 0;
};

namespace detail {

// A record that waits for its closure, and the place where the closure is to be made.
struct OpSlot {
  EngineOp* op;
  void* storage;
};

// The properties of a closure's type that its record needs.
struct OpClosureType {
  static constexpr size_t kSmallBytes = 32;  // bytes for a closure in the record itself
  static constexpr size_t kLargeBytes = 64;  // bytes for a closure in the record's details

  bool asynchronous;
  bool large;
  // Destroys the closure; calls it first when `call` is set, with the Completion when asynchronous.
  void (*run)(void* storage, bool call, Completion* completion);
};

// Makes the OpClosureType of closures of type F.
template <class F, bool kAsynchronous>
struct OpClosure {
  static constexpr bool kFits =
      sizeof(F) <= OpClosureType::kLargeBytes && alignof(F) <= alignof(std::max_align_t);

  static void Run(void* storage, bool call, [[maybe_unused]] Completion* completion) {
    struct End {
      F& closure;
      ~End() { closure.~F(); }
    };
    const End end{*std::launder(static_cast<F*>(storage))};
    if (!call) return;
    if constexpr (kAsynchronous)
      end.closure(std::move(*completion));
    else
      end.closure();
  }

  static constexpr OpClosureType kType{kAsynchronous, sizeof(F) > OpClosureType::kSmallBytes, &Run};
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/dependency/impl/operation.ipp"
#endif

#endif  // OPKIT_ENGINE_DEPENDENCY_OPERATION_HPP_
