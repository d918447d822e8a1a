// Counts this program's calls of operator new, for tests of code that must not allocate. The count
// is always 0 under ThreadSanitizer. Exactly one unit of the program includes
// count_allocations.hpp.
#ifndef OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_
#define OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_

#include <cstdint>

int64_t Allocations();

// Calls run() until `quiet` calls in succession allocate nothing: threads and other objects that
// are made once then exist. Gives up after 1000 calls.
template <class F>
void WarmUp(F&& run, int quiet = 20) {
  for (int i = 0, found = 0; i < 1000 && found < quiet; ++i) {
    const int64_t before = Allocations();
    run();
    found = Allocations() == before ? found + 1 : 0;
  }
}

// Returns the number of allocations in `count` calls. Takes the smallest number of up to 20
// batches, because a thread of this or an earlier test may start during a batch.
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
