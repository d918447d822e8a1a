// expect: REGISTER_PARTITIONER needs #include <opkit/partition.hpp>
// one-error
#include <opkit/graph.hpp>

REGISTER_PARTITIONER(my).setSupportedOps([](auto&&...) {}).setSubgraphOp("Mine");
