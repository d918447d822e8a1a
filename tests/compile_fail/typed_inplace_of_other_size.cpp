// expect-first: OPKIT_OP(…).Inplace<"input", "output">: the two have elements of different sizes
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Widen(Context&, In<"x", float>, Out<"y", double>) {}
OPKIT_OP(Widen).SameShape<"x", "y">().Inplace<"x", "y">().Kernel<CPUContext>();
