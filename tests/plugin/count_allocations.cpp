// Counts for every test of the folder; see support/allocations.hpp.
#include "support/count_allocations.hpp"
