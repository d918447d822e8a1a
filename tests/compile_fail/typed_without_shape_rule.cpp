// expect-first: OPKIT_OP: an output has no shape rule; add .SameShape<"input", "output">() or .OutShape<"output">(f) before .Kernel
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Split(Context&, In<"x", float>, Out<"y", float>, Out<"z", float>) {}
OPKIT_OP(Split).SameShape<"x", "z">().Kernel<CPUContext>();
