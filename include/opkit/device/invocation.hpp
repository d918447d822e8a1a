// Invocation: the identity {id, parent, kind} of the running operator, one current identity per
// thread. Run and Invoke open a scope. A task captures the token when it is pushed, and adopts the
// token in the thread that runs it. So work on any thread is attributed to its operator without
// parsing names. The profiler receives the begin and end of scopes through a SpanSink.
#ifndef OPKIT_DEVICE_INVOCATION_HPP_
#define OPKIT_DEVICE_INVOCATION_HPP_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "opkit/base/denormals.hpp"
#include "opkit/base/interned_names.hpp"
#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct Device;

// A token, freely copied to other threads. `id` is unique in the process; 0 means none.
struct Invocation {
  // The kind of work. An operator that another operator invokes keeps its kind; its parent is the
  // other's id.
  enum class Kind : uint8_t {
    kNone,
    kOperator,
    kCustomOperator,  // loaded from a library, or registered by functions or a typed function
    // 3 was an operator inside another operator; an older library may still use it.
    kUserCode = 4,  // a scope that an author opened
    kConverter,
    kCopy,
    kRun,     // a run of an executor or a net
    kTask,    // an operation pushed to an engine
    kPhase,   // a part of Compile
    kEngine,  // a thread of a pool sleeps or waits
  };

  uint64_t id = 0;
  uint64_t parent = 0;
  Kind kind = Kind::kNone;
  // The interned path of this custom operator, or of the nearest custom operator around it:
  // "Outer::MyOp". 0 outside of custom operators, and while no profile is recorded.
  uint32_t custom = 0;
  // The work takes denormal numbers as zeros (PlanOptions::schedule.flush_denormals): a thread that
  // adopts the token sets its floating-point unit so for the scope's life.
  bool flushes_denormals = false;
  friend bool operator==(const Invocation&, const Invocation&) = default;
};

namespace detail {

// The interned names of a span (base/interned_names.hpp): `name` of the operator's type, the task
// or the scope, `node` of the graph's node. 0 for none.
struct SpanNames {
  uint32_t name = 0;
  uint32_t node = 0;
  // The name as text if the name has no number; valid only during the call that receives it.
  std::string_view text = {};

  // Returns the names of a span whose name is chosen by the program. A program may use any number
  // of names, so InternNameIfRoom limits their memory.
  static SpanNames OfText(std::string_view name) {
    const uint32_t number = InternNameIfRoom(name);
    return {number, 0, number != 0 ? std::string_view() : name};
  }
};

// The work of an operator's run: the interned dtypes and shapes of its inputs, "float32[2, 3]", the
// interned backend of its kernel, and the cost by its schema.
struct SpanWork {
  uint32_t shapes = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;
  uint32_t backend = 0;
};

// Receives the spans of all threads. A sink lives as long as the process.
class SpanSink {
 public:
  // Begins a span of `now` on this thread, inside the thread's innermost span. `adopted`: the span
  // is a part of an invocation that was opened or pushed elsewhere. `device` may be null. May set
  // `now.custom`.
  virtual void Open(Invocation& now, SpanNames names, const Device* device,
                    bool adopted) noexcept = 0;
  // Closes the innermost span of this thread.
  virtual void Close() noexcept = 0;
  // True if operators are to call EndSpan and Describe.
  virtual bool WantsWork() const noexcept { return false; }
  // Records the end of the work in this thread's innermost span; the scope itself closes later.
  virtual void EndSpan() noexcept {}
  // Records the work of this thread's innermost span, after EndSpan.
  virtual void Describe(const SpanWork&) noexcept {}
  // Records that the event of an operator's run is terminal, which may be long after the run's span
  // on the host.
  virtual void Completed(uint64_t id) noexcept = 0;
  // Records that the run's work was on its device from `begin` to `end`: the device's clock in ns
  // of MonotonicNs. A device that has a clock calls it before Completed.
  virtual void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept {
    static_cast<void>(id), static_cast<void>(begin), static_cast<void>(end);
  }
  // True if threads of a pool are to open spans of kEngine and to call Marked.
  virtual bool WantsEngine() const noexcept { return false; }
  // Records an instant marker with this interned name.
  virtual void Marked(uint32_t name) noexcept { static_cast<void>(name); }
  // Records that this thread pushed `task` to an engine.
  virtual void Pushed(const Invocation& task, SpanNames names) noexcept = 0;

 protected:
  ~SpanSink() = default;
};

// The invocation of one thread, and the block of ids that it draws from.
struct InvocationState {
  Invocation current;
  uint64_t next_id = 0;
  uint64_t last_id = 0;
};
inline constinit thread_local InvocationState t_invocation;
inline constinit std::atomic<uint64_t> g_next_invocation_id{1};
inline constinit std::atomic<SpanSink*> g_span_sink{nullptr};
// Points to the variable with the sink of this image, which is the program or a shared object. In
// the program the pointer holds &g_span_sink. In a loaded library it points to a variable that only
// the library uses, even if the library exports its symbols. The pointer is set before the
// library's operators run.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<SpanSink*>* g_image_span_sink = &g_span_sink;

// Returns the current sink, or null. The first load is relaxed, which costs one load on every
// machine: a thread that sees a new sink late records later. The second is acquire, so that the
// thread sees the sink's members.
OPKIT_IMAGE_LOCAL inline SpanSink* CurrentSpanSink() {
  if (!g_image_span_sink->load(std::memory_order_relaxed)) [[likely]]
    return nullptr;
  return g_image_span_sink->load(std::memory_order_acquire);
}

// Takes `count` consecutive ids and returns the first. Each thread takes ids from its own block, so
// that opening a scope touches no shared memory.
inline uint64_t NextInvocationIds(uint64_t count) {
  InvocationState& state = t_invocation;
  if (state.last_id - state.next_id < count) [[unlikely]] {
    const uint64_t block = count + (uint64_t{1} << 20);
    // Relaxed: only the uniqueness of the number matters; the number publishes no data.
    state.next_id = g_next_invocation_id.fetch_add(block, std::memory_order_relaxed);
    state.last_id = state.next_id + block;
  }
  return std::exchange(state.next_id, state.next_id + count);
}

}  // namespace detail

inline Invocation CurrentInvocation() { return detail::t_invocation.current; }

// Opens a child of the current invocation for the scope's life and restores the current one at its
// end, also after an exception. Costs a few ns.
//
//   std::thread([token = opkit::CurrentInvocation()] {
//     auto scope = opkit::InvocationScope::Adopt(token);
//     …                                    // attributed to the operator that started the thread
//   });
class InvocationScope {
 public:
  explicit InvocationScope(Invocation::Kind kind) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = {detail::NextInvocationIds(1), previous_.id, kind,
                                    previous_.custom, previous_.flushes_denormals};
  }
  // Calls `names()` only while a profile is recorded.
  template <class Names>
  InvocationScope(Invocation::Kind kind, const Device& device, Names names)
      : InvocationScope(kind) {
    if (detail::SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), &device, /*adopted=*/false);
  }
  template <class Names>
  InvocationScope(Invocation::Kind kind, Names names) : InvocationScope(kind) {
    if (detail::SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/false);
  }
  // Continues the invocation `token` on this thread, without a new identity.
  static InvocationScope Adopt(Invocation token) {
    return Adopt(token, [] { return detail::SpanNames{}; });
  }
  template <class Names>
  static InvocationScope Adopt(Invocation token, Names names) {
    return InvocationScope(token, names);
  }

  InvocationScope(InvocationScope&&) = delete;
  ~InvocationScope() {
    if (sink_) [[unlikely]]
      sink_->Close();
    SwitchTo(previous_);
  }

  bool is_recorded() const { return static_cast<bool>(sink_); }

 private:
  template <class Names>
  InvocationScope(Invocation token, Names names) : previous_(detail::t_invocation.current) {
    SwitchTo(token);
    if (detail::SpanSink* sink = detail::CurrentSpanSink();
        sink && token.id != 0 && token.id != previous_.id) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/true);
  }
  static void SwitchTo(const Invocation& invocation) {
    if (detail::t_invocation.current.flushes_denormals != invocation.flushes_denormals) [[unlikely]]
      detail::SetFlushDenormals(invocation.flushes_denormals);
    detail::t_invocation.current = invocation;
  }
  void Open(detail::SpanSink& sink, detail::SpanNames names, const Device* device, bool adopted) {
    sink.Open(detail::t_invocation.current, names, device, adopted);
    sink_ = &sink;
  }

  Invocation previous_;
  detail::SpanSink* sink_ = nullptr;
};

namespace detail {

// Makes this thread, and the work that it pushes, take denormal numbers as zeros or not, for the
// scope's life.
class DenormalScope {
 public:
  explicit DenormalScope(bool flushes) : scope_(InvocationScope::Adopt(With(flushes))) {}

 private:
  static Invocation With(bool flushes) {
    Invocation now = CurrentInvocation();
    now.flushes_denormals = flushes;
    return now;
  }
  const InvocationScope scope_;
};

// The id of this thread's IssueScope; 0 outside of one.
inline constinit thread_local uint64_t t_issuer = 0;

// Joins the work that this thread issues on streams during the scope. If one piece of work fails,
// the rest of the scope's work and its event fail too. Work of other threads on the same stream is
// not affected. Inside another scope the work belongs to the outer scope.
class IssueScope {
 public:
  explicit IssueScope(bool wanted) : opened_(wanted && t_issuer == 0) {
    if (opened_) t_issuer = NextInvocationIds(1);
  }
  IssueScope(IssueScope&&) = delete;
  ~IssueScope() {
    if (opened_) t_issuer = 0;
  }

 private:
  const bool opened_;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_DEVICE_INVOCATION_HPP_
