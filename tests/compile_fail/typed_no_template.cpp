// expect: OPKIT_OP(name): name must be one function template over <class Context>, or over <class Context, class T> with an element type T
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

void CopyOne(CPUContext&, In<"x", float> x, Out<"y", float> y) { y[0] = x[0]; }
OPKIT_OP(CopyOne).SameShape<"x", "y">().Kernel<CPUContext>();
