// expect-first: OPKIT_OP(name): name must be one function template over <class Context>, or over <class Context, class T> with an element type T
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context, class T, class U>
void Cast(Context&, In<"x", T>, Out<"y", U>) {}
OPKIT_OP(Cast).SameShape<"x", "y">().Kernel<CPUContext, float, double>();
