// expect-first: OPKIT_OP(…).SameShape<names…>: name an input, or an output that has a shape rule already, for the others to follow
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"z">().Kernel<CPUContext>();
