#include "opkit/base/timeout.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>

namespace timeout_test { namespace {

using opkit::Timeout;
using namespace std::chrono_literals;

TEST_CASE("without a duration a timeout is for ever") {
  CHECK(Timeout().is_forever());
  CHECK(Timeout().DeadlineNs() == -1);
}

TEST_CASE("durations of any unit are kept in nanoseconds, rounded down") {
  CHECK(Timeout(0ns).ns() == 0);
  CHECK_FALSE(Timeout(0ns).is_forever());
  CHECK(Timeout(50ms).ns() == 50'000'000);
  CHECK(Timeout(2h).ns() == 7'200'000'000'000);
  CHECK(Timeout(std::chrono::duration<double>(1.5)).ns() == 1'500'000'000);
  CHECK(Timeout(std::chrono::duration<double, std::nano>(2.9)).ns() == 2);
  CHECK(Timeout(std::chrono::duration<int64_t, std::pico>(1999)).ns() == 1);
  static_assert(Timeout(3us).ns() == 3000);
}

TEST_CASE("a negative duration has passed") {
  CHECK(Timeout(-1ns).ns() == 0);
  CHECK(Timeout(-1h).ns() == 0);
  CHECK(Timeout(std::chrono::duration<double>(-1e300)).ns() == 0);
}

TEST_CASE("a duration past int64 nanoseconds is for ever") {
  CHECK(Timeout((std::chrono::hours::max)()).is_forever());
  CHECK(Timeout(std::chrono::duration<double>(1e300)).is_forever());
  CHECK(
      Timeout(std::chrono::duration<double>(std::numeric_limits<double>::infinity())).is_forever());
  CHECK(Timeout(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()))
            .is_forever());
}

TEST_CASE("a deadline is that far from now") {
  const int64_t before = opkit::detail::MonotonicNs();
  const int64_t deadline = Timeout(1h).DeadlineNs();
  const int64_t after = opkit::detail::MonotonicNs();
  CHECK(deadline >= before + 3'600'000'000'000);
  CHECK(deadline <= after + 3'600'000'000'000);
}

}  // namespace
}  // namespace timeout_test
