// expect-first: OPKIT_OP(…).Values<"name">(…): the name is not a string attribute of the function
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "z">().Values<"alpha">({"one"}).Kernel<CPUContext>();
