// expect-first: OPKIT_OP(…).Default<"name">(value): the value is not of the attribute's type
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "z">().Default<"alpha">("one").Kernel<CPUContext>();
