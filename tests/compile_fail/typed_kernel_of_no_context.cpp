// expect-first: OPKIT_OP(…).Kernel<Context>: Context must meet opkit::DeviceContext
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

struct NoContext {};
OPKIT_OP(Axpy).SameShape<"x", "z">().Kernel<NoContext>();
