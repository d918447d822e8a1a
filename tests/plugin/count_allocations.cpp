// Counts for every test of the folder; see ../allocations.hpp.
#include "../count_allocations.hpp"
