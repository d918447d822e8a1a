// How often this program has called operator new, for tests of what allocates nothing. Always 0
// under ThreadSanitizer.
#ifndef OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_
#define OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_

#include <cstdint>

int64_t Allocations();

#endif  // OPKIT_TESTS_SUPPORT_ALLOCATIONS_HPP_
