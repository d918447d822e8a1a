// compiles
// Likewise where op.hpp comes first.
#include <unordered_map>

#include <opkit/op.hpp>

#include <opkit/opkit.hpp>

using namespace opkit;

void Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
int Arity(const AttrMap&, int* in, int* out);
REGISTER_OP(My).setForward(Forward).setParseAttrs(Arity);
REGISTER_PARTITIONER(my).setSupportedOps([](std::string, const int, int*,
                                            std::unordered_map<std::string, std::string>&) {
  return SUCCESS;
});
