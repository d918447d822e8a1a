// expect-first: OPKIT_OP(…).Default<"name">(value): the value is not of the attribute's type
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Pick(Context&, In<"x", float>, Out<"y", float>, Attr<"axis", int>) {}
OPKIT_OP(Pick).SameShape<"x", "y">().Default<"axis">(1.5).Kernel<CPUContext>();
