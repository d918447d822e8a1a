// expect-first: OPKIT_OP: every parameter after the context must be In<"name", T>, OptionalIn<"name", T>, Out<"name", T> or Attr<"name", T>
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Scale(Context&, In<"x", float>, Out<"y", float>, float scale) {}
OPKIT_OP(Scale)
    .SameShape<"x", "y">()
    .Inplace<"x", "y">()
    .Default<"scale">(1.f)
    .Kernel<CPUContext>();
