// compiles
// The macros of opkit.hpp give way to those of the headers that it names.
#include <opkit/opkit.hpp>

#include <opkit/functions.hpp>
#include <opkit/op/gradient/gradient.hpp>
#include <opkit/partition.hpp>

using namespace opkit;

void Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
int Arity(const AttrMap&, int* in, int* out);
REGISTER_OP(My).setForward(Forward).setParseAttrs(Arity);
REGISTER_PARTITIONER(my).setSupportedOps([](const PartitionView&, PartitionAnswer&) {});
REGISTER_PASS(my).setBody([](const Graph& graph) { return graph; });
NO_GRADIENT(Other);
