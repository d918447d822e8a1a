// compiles
// In a library without partition.hpp the macros are those of op.hpp.
#include <unordered_map>

#include <opkit/opkit.hpp>

#include <opkit/op.hpp>

using namespace opkit;

void Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
int Arity(const AttrMap&, int* in, int* out);
REGISTER_OP(My).setForward(Forward).setParseAttrs(Arity);
REGISTER_PARTITIONER(my).setSupportedOps([](std::string, const int, int*,
                                            std::unordered_map<std::string, std::string>&) {
  return SUCCESS;
});
