// Which operator is running: an explicit identity {id, parent, kind}, ambient per thread. Run and
// Invoke open a scope; a task captures the token when it is pushed and adopts it where it runs, so
// work done anywhere is attributed to its operator. Names are never parsed to find this out.
#ifndef OPKIT_DEVICE_INVOCATION_HPP_
#define OPKIT_DEVICE_INVOCATION_HPP_

#include <atomic>
#include <cstdint>
#include <utility>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

enum class InvocationKind : uint8_t {
  kNone,
  kOperator,
  kCustomOperator,  // loaded from a library, or registered by functions
  kSubOperator,     // invoked from inside another operator
  kUserCode,        // a scope that an author opened
  kConverter,
  kCopy,
};

// A token, freely copied to other threads. `id` is unique in the process; 0 means none.
struct Invocation {
  uint64_t id = 0;
  uint64_t parent = 0;
  InvocationKind kind = InvocationKind::kNone;
  friend bool operator==(const Invocation&, const Invocation&) = default;
};

namespace detail {

struct InvocationState {
  Invocation current;
  uint64_t next_id = 0;
  uint64_t last_id = 0;
};
inline constinit thread_local InvocationState t_invocation;
inline constinit std::atomic<uint64_t> g_next_invocation_id{1};

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
    detail::t_invocation.current = {detail::NextInvocationIds(1), previous_.id, kind};
  }
  // Continues `token` itself on this thread, without a new identity.
  static InvocationScope Adopt(Invocation token) { return InvocationScope(token); }

  InvocationScope(const InvocationScope&) = delete;
  InvocationScope& operator=(const InvocationScope&) = delete;
  ~InvocationScope() { detail::t_invocation.current = previous_; }

 private:
  explicit InvocationScope(Invocation token) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = token;
  }
  Invocation previous_;
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
