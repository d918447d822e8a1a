// expect-first: OPKIT_OP: the function must be void or bool (Context&, In<"name", T>…, Out<"name", T>…, Attr<"name", T>…)
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Nothing() {}
OPKIT_OP(Nothing).Kernel<CPUContext>();
