#include "opkit/engine/pool/idle_spin.hpp"

#include <doctest/doctest.h>

namespace idle_spin_test {
using opkit::detail::IdleSpin;
using opkit::detail::SpinTimes;

constexpr SpinTimes kTimes{.idle = 10, .after_loop = 100};

TEST_CASE("a thread without work looks for some for a while") {
  IdleSpin spin;
  CHECK(spin.Goes(1000, false, kTimes));
  CHECK(spin.Goes(1009, false, kTimes));
  CHECK(!spin.Goes(1010, false, kTimes));
  spin.Woke(/*for_loop=*/false, 1010);
  CHECK(spin.Goes(1010, false, kTimes));
}

TEST_CASE("a task begins the time anew, and where enough threads look it looks no longer") {
  IdleSpin spin;
  CHECK(spin.Goes(1000, false, kTimes));
  spin.Worked(/*on_loop=*/false, 1009);
  CHECK(spin.Goes(1012, false, kTimes));
  CHECK(!spin.Goes(1013, true, kTimes));
  CHECK(!spin.Goes(1022, false, kTimes));
}

TEST_CASE("after a loop it looks for longer, however many look, until it has slept") {
  IdleSpin spin;
  spin.Worked(/*on_loop=*/true, 1000);
  CHECK(spin.Goes(1001, true, kTimes));
  CHECK(spin.Goes(1099, true, kTimes));
  spin.Worked(/*on_loop=*/false, 1099);  // a task between the loops
  CHECK(!spin.Goes(1100, true, kTimes));
  CHECK(spin.Goes(1101, false, kTimes));
  spin.Worked(/*on_loop=*/true, 2000);
  spin.Woke(/*for_loop=*/false, 2000);
  CHECK(!spin.Goes(2001, true, kTimes));
}

TEST_CASE("a thread that woke for a loop looks for as long, though that one had ended") {
  IdleSpin spin;
  spin.Woke(/*for_loop=*/true, 1000);
  CHECK(spin.Goes(1099, true, kTimes));
  CHECK(!spin.Goes(1100, true, kTimes));
}

TEST_CASE("a pool of more threads than processors does not look at all") {
  IdleSpin spin;
  spin.Worked(/*on_loop=*/true, 1000);
  CHECK(!spin.Goes(1001, false, SpinTimes{}));
}

}  // namespace idle_spin_test
