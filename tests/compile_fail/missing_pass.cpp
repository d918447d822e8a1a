// expect: REGISTER_PASS needs #include <opkit/partition.hpp>
// one-error
#include <opkit/graph.hpp>

REGISTER_PASS(my).setBody([](const opkit::Graph& graph) { return graph; });
