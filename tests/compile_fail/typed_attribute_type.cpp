// expect-first: OPKIT_OP: Attr<"name", T>: T must be an integer, bool, floating-point number, std::string, opkit::Tensor, or a std::vector of one of these
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Scale(Context&, In<"x", float>, Out<"y", float>, Attr<"scale", const char*>) {}
OPKIT_OP(Scale).SameShape<"x", "y">().Default<"scale">("a").Kernel<CPUContext>();
