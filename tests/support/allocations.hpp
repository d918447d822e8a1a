// How often this program has called operator new, for tests of what allocates nothing. Always 0
// under ThreadSanitizer.
#ifndef OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_
#define OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_

#include <cstdint>

int64_t Allocations();

// Runs until the threads and whatever else is made once exist: `quiet` runs on end allocate
// nothing.
template <class F>
void WarmUp(F&& run, int quiet = 20) {
  for (int i = 0, found = 0; i < 1000 && found < quiet; ++i) {
    const int64_t before = Allocations();
    run();
    found = Allocations() == before ? found + 1 : 0;
  }
}

// What `count` runs allocate, the least of a few batches: a thread, of this test or of an earlier
// one, may start only now, once.
template <class F>
int64_t AllocationsOf(F&& run, int count = 50) {
  int64_t least = -1;
  for (int batch = 0; batch < 20 && least != 0; ++batch) {
    const int64_t before = Allocations();
    for (int i = 0; i < count; ++i) run();
    const int64_t found = Allocations() - before;
    if (least < 0 || found < least) least = found;
  }
  return least;
}

#endif  // OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_
