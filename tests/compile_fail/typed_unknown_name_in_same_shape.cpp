// expect-first: OPKIT_OP(…).SameShape<names…>: a name is neither an input nor an output of the function
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "why", "z">().Inplace<"y", "z">().Kernel<CPUContext>();
