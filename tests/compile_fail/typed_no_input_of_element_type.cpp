// expect-first: OPKIT_OP: a function over <Context, T> needs an input In<"name", T> that says which T to run
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context, class T>
void Fill(Context&, OptionalIn<"like", T>, Out<"y", T>, Attr<"value", T>) {}
OPKIT_OP(Fill).SameShape<"like", "y">().Kernel<CPUContext, float>();
