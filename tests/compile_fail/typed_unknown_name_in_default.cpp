// expect-first: OPKIT_OP(…).Default<"name">: the name is not an attribute of the function
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).SameShape<"x", "z">().Default<"alpah">(1.f).Kernel<CPUContext>();
