// Timeout: how long to wait. Takes any std::chrono duration without including <chrono>.
#ifndef OPKIT_BASE_TIMEOUT_HPP_
#define OPKIT_BASE_TIMEOUT_HPP_

#include <cstdint>

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   event.Finish();                                // for ever
//   event.Finish(std::chrono::milliseconds(50));
class Timeout {
 public:
  constexpr Timeout() = default;
  // Takes a std::chrono::duration, rounded down to nanoseconds. A negative duration counts as 0; a
  // duration past int64 nanoseconds is for ever.
  template <class Duration>
    requires requires(const Duration& d) {
      d.count();
      Duration::period::num;
    }
  constexpr Timeout(const Duration& duration) {
    const auto ns = static_cast<long double>(duration.count()) * 1e9L *
                    static_cast<long double>(Duration::period::num) /
                    static_cast<long double>(Duration::period::den);
    if (ns < 9.2e18L) ns_ = ns > 0 ? static_cast<int64_t>(ns) : 0;
  }

  constexpr bool is_forever() const { return ns_ < 0; }
  constexpr int64_t ns() const { return ns_; }
  // Returns the deadline on the clock of detail::MonotonicNs; -1 for ever.
  int64_t DeadlineNs() const {
    if (is_forever()) return -1;
    int64_t deadline = 0;
    return __builtin_add_overflow(detail::MonotonicNs(), ns_, &deadline) ? -1 : deadline;
  }

 private:
  int64_t ns_ = -1;
};

}}  // namespace opkit

#endif  // OPKIT_BASE_TIMEOUT_HPP_
