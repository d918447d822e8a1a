// expect-first: OPKIT_OP: the function's first parameter must be Context&
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Scale(In<"x", float>& x, Out<"y", float> y) {}
OPKIT_OP(Scale).SameShape<"x", "y">().Kernel<CPUContext>();
