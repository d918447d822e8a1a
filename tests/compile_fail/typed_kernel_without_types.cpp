// expect-first: OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element types here, one over <Context> takes none
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context, class T>
void Copy(Context&, In<"x", T>, Out<"y", T>) {}
OPKIT_OP(Copy).SameShape<"x", "y">().Kernel<CPUContext>();
