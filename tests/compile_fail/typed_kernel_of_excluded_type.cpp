// expect-first: OPKIT_OP(…).Kernel<Context, T…>: the function has no version for this context and these element types
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context, std::integral T>
void Copy(Context&, In<"x", T>, Out<"y", T>) {}
OPKIT_OP(Copy).SameShape<"x", "y">().Kernel<CPUContext, int32_t, float>();
