// Which operator is running: an explicit identity {id, parent, kind}, ambient per thread. Run and
// Invoke open a scope; a task captures the token when it is pushed and adopts it where it runs, so
// work done anywhere is attributed to its operator. Names are never parsed to find this out. The
// profiler sees scopes begin and end through a SpanSink.
#ifndef OPKIT_DEVICE_INVOCATION_HPP_
#define OPKIT_DEVICE_INVOCATION_HPP_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "opkit/base/interned_names.hpp"
#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

struct Device;

// The kind of work, wherever it runs: an operator that another one invokes keeps its kind, and has
// the other's id as its parent.
enum class InvocationKind : uint8_t {
  kNone,
  kOperator,
  kCustomOperator,  // loaded from a library, or registered by functions or a typed function
  // 3 was an operator inside another one, which an older library may still hand over.
  kUserCode = 4,  // a scope that an author opened
  kConverter,
  kCopy,
  kRun,     // of an executor or a net
  kTask,    // an operation pushed to an engine
  kPhase,   // a part of Compile
  kEngine,  // what a thread of a pool does besides: it sleeps, or waits
};

// A token, freely copied to other threads. `id` is unique in the process; 0 means none.
struct Invocation {
  uint64_t id = 0;
  uint64_t parent = 0;
  InvocationKind kind = InvocationKind::kNone;
  // While a profile is recorded: the interned path of the nearest custom operator around it, or of
  // itself, as in "Outer::MyOp"; 0 outside of every one.
  uint32_t custom = 0;
  friend bool operator==(const Invocation&, const Invocation&) = default;
};

// Interned names of a span (base/interned_names.hpp): of the operator's type, task or scope, and of
// the node. 0 for none.
struct SpanNames {
  uint32_t name = 0;
  uint32_t node = 0;
  // The name itself, for the call that it is given to, where it has no number.
  std::string_view text = {};

  // For a name of the program's own: it may have any number of them.
  static SpanNames OfText(std::string_view name) {
    const uint32_t number = InternNameIfRoom(name);
    return {number, 0, number != 0 ? std::string_view() : name};
  }
};

// The work of an operator's run: the interned dtypes and shapes of its inputs, "float32[2, 3]", the
// interned backend of its kernel, and the cost that its schema tells.
struct SpanWork {
  uint32_t shapes = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;
  uint32_t backend = 0;
};

// Receives the spans of all threads. A sink lives as long as the process.
class SpanSink {
 public:
  // A span of `now` begins on this thread, inside the one that began there last. `adopted`: it is a
  // part of an invocation that was opened or pushed elsewhere. `device` is null where there is
  // none. May set `now.custom`.
  virtual void Open(Invocation& now, SpanNames names, const Device* device,
                    bool adopted) noexcept = 0;
  // The span that began last on this thread ends.
  virtual void Close() noexcept = 0;
  // Whether EndSpan and Describe are to be called for operators.
  virtual bool WantsWork() const noexcept { return false; }
  // The span that began last on this thread has ended, though it closes later.
  virtual void EndSpan() noexcept {}
  // It did this work.
  virtual void Describe(const SpanWork&) noexcept {}
  // The event of an operator's run has ended, which may be long after its span on the host.
  virtual void Completed(uint64_t id) noexcept = 0;
  // What the run issued was on its device from `begin` to `end`, by the device's clock: ns of
  // MonotonicNs. Called before Completed, by a device that has a clock.
  virtual void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept {
    static_cast<void>(id), static_cast<void>(begin), static_cast<void>(end);
  }
  // Whether spans of kEngine, and Marked, are to be called.
  virtual bool WantsEngine() const noexcept { return false; }
  // Something of this interned name has happened on this thread.
  virtual void Marked(uint32_t name) noexcept { static_cast<void>(name); }
  // `task` was handed to an engine by this thread.
  virtual void Pushed(const Invocation& task, SpanNames names) noexcept = 0;

 protected:
  ~SpanSink() = default;
};

namespace detail {

struct InvocationState {
  Invocation current;
  uint64_t next_id = 0;
  uint64_t last_id = 0;
};
inline constinit thread_local InvocationState t_invocation;
inline constinit std::atomic<uint64_t> g_next_invocation_id{1};
inline constinit std::atomic<SpanSink*> g_span_sink{nullptr};
// Where this image finds its sink: in the process's, or in a library that a program has loaded,
// whatever symbols that exports, in one of its own. Written before its operators run.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<SpanSink*>* g_image_span_sink = &g_span_sink;

// The sink of the process, or null. Relaxed where there is none, which costs a load on every
// machine: a thread that sees a sink late records later. Acquire where there is one: it is seen as
// it was made.
OPKIT_IMAGE_LOCAL inline SpanSink* CurrentSpanSink() {
  if (!g_image_span_sink->load(std::memory_order_relaxed)) [[likely]]
    return nullptr;
  return g_image_span_sink->load(std::memory_order_acquire);
}

// Draws `count` ids that follow each other and returns the first. Each thread draws from a block of
// its own, so that opening a scope touches nothing shared.
inline uint64_t NextInvocationIds(uint64_t count) {
  InvocationState& state = t_invocation;
  if (state.last_id - state.next_id < count) [[unlikely]] {
    const uint64_t block = count + (uint64_t{1} << 20);
    // Relaxed: only the uniqueness of the number matters, it publishes nothing.
    state.next_id = g_next_invocation_id.fetch_add(block, std::memory_order_relaxed);
    state.last_id = state.next_id + block;
  }
  return std::exchange(state.next_id, state.next_id + count);
}

}  // namespace detail

inline Invocation CurrentInvocation() { return detail::t_invocation.current; }

// Opens a child of the current invocation for the scope's life; restores on every path, exceptions
// included. Costs a few ns.
//
//   std::thread([token = opkit::CurrentInvocation()] {
//     auto scope = opkit::InvocationScope::Adopt(token);
//     …                                    // attributed to the operator that started the thread
//   });
class InvocationScope {
 public:
  explicit InvocationScope(InvocationKind kind) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = {detail::NextInvocationIds(1), previous_.id, kind,
                                    previous_.custom};
  }
  // `names()` is called where a profile is recorded.
  template <class Names>
  InvocationScope(InvocationKind kind, const Device& device, Names names) : InvocationScope(kind) {
    if (SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), &device, /*adopted=*/false);
  }
  template <class Names>
  InvocationScope(InvocationKind kind, Names names) : InvocationScope(kind) {
    if (SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/false);
  }
  // Continues `token` itself on this thread, without a new identity.
  static InvocationScope Adopt(Invocation token) {
    return Adopt(token, [] { return SpanNames{}; });
  }
  template <class Names>
  static InvocationScope Adopt(Invocation token, Names names) {
    return InvocationScope(token, names);
  }

  InvocationScope(const InvocationScope&) = delete;
  InvocationScope& operator=(const InvocationScope&) = delete;
  ~InvocationScope() {
    if (sink_) [[unlikely]]
      sink_->Close();
    detail::t_invocation.current = previous_;
  }

  bool is_recorded() const { return static_cast<bool>(sink_); }

 private:
  template <class Names>
  InvocationScope(Invocation token, Names names) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = token;
    if (SpanSink* sink = detail::CurrentSpanSink();
        sink && token.id != 0 && token.id != previous_.id) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/true);
  }
  void Open(SpanSink& sink, SpanNames names, const Device* device, bool adopted) {
    sink.Open(detail::t_invocation.current, names, device, adopted);
    sink_ = &sink;
  }

  Invocation previous_;
  SpanSink* sink_ = nullptr;
};

namespace detail {

inline constinit thread_local uint64_t t_issuer = 0;

// Joins the work that this thread issues on streams while the scope lives: a failure of one piece
// concerns the others and their event, not the work that other threads issue on the same stream in
// between. Inside another scope the work belongs to that one.
class IssueScope {
 public:
  explicit IssueScope(bool wanted) : opened_(wanted && t_issuer == 0) {
    if (opened_) t_issuer = NextInvocationIds(1);
  }
  IssueScope(const IssueScope&) = delete;
  IssueScope& operator=(const IssueScope&) = delete;
  ~IssueScope() {
    if (opened_) t_issuer = 0;
  }

 private:
  const bool opened_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_DEVICE_INVOCATION_HPP_
