// expect-first: OPKIT_OP(…).Inplace<"input", "output">: the second name is not an output of the function
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "z">().Inplace<"y", "alpha">().Kernel<CPUContext>();
