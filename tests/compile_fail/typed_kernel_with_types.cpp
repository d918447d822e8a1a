// expect-first: OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element types here, one over <Context> takes none
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "z">().Kernel<CPUContext, float>();
