// expect-first: OPKIT_OP(…).Kernel<Context, T…>: each T is an element type of a tensor: float, double, bool, an integer, opkit::float16 or opkit::bfloat16
#include <string>

#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context, class T>
void Double(Context&, In<"x", T>, Out<"y", T>) {}

OPKIT_OP(Double).SameShape<"x", "y">().Kernel<CPUContext, float, std::string>();
