// Reductions of blocks of elements.
#include "opkit/cluster/impl/reduce.ipp"
