// expect-first: OPKIT_OP: two parameters of the function have the same name
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Add(Context&, In<"x", float>, In<"x", float>, Out<"z", float>) {}
OPKIT_OP(Add).SameShape<"x", "z">().Kernel<CPUContext>();
